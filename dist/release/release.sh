#!/usr/bin/env bash
# Writes the files of a release into DIRECTORY/release. The version is that of the tag at HEAD;
# without a tag it is the output of git describe, for a trial release.
#
#   dist/release/release.sh DIRECTORY
#
# The same commit, Go version and Debian packages give the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "${1:?usage: dist/release/release.sh DIRECTORY}"
OUT=$(realpath "$1")

say() { echo "release: $*"; }
fail() { echo "release: $*" >&2; exit 1; }

version=$(git describe --tags --always --dirty)
section=Unreleased
if tag=$(git describe --tags --exact-match 2>/dev/null); then
	# The version is also part of the image's name, which may not contain + or /.
	[[ $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "the tag $tag is no version such as v1.2.0 or v1.2.0-rc.1"
	changed=$(git status --porcelain)
	[[ -z $changed ]] || fail "the work tree is not what $tag is: $changed"
	section=$tag
fi

export CGO_ENABLED=0
package=github.com/ovnkube/ovnkube/go-controller/pkg/version
ldflags="-s -w -X $package.Version=$version -X $package.Commit=$(git rev-parse HEAD)"
work=$(mktemp -d "$OUT/release-XXXXXX")
trap 'rm -rf "$work"' EXIT
new=$work/release
mkdir "$new"
(cd dist/release && go build -o "$work/release-tool" .)

"$work/release-tool" notes "$section" CHANGELOG.md >"$new/RELEASE-NOTES.md"
cp LICENSE "$new/"

for arch in amd64 arm64; do
	say "building $version for linux/$arch"
	mkdir -p "$work/$arch/bin"
	(cd go-controller && GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$work/$arch/bin/" ./cmd/...)
	for binary in "$work/$arch/bin"/*; do
		install -m 0755 "$binary" "$new/$(basename "$binary")-linux-$arch"
	done
done

# Packages of another architecture cannot be unpacked here, so the image is for this architecture.
arch=$(go env GOHOSTARCH)
IMAGE=ovnkube:$version IMAGE_ROOT=$OUT/image-root dist/images/build.sh "$work/$arch"
cp "$work/$arch/image.tar" "$new/ovnkube-image-linux-$arch.tar"
"$work/release-tool" packages "$OUT/image-root/ovnkube-packages" "$OUT/image-root/root.tar" >"$new/image-packages.txt"

say "rendering manifests"
for overlay in local shared ha ha-local; do
	{
		cat dist/crds/*.yaml
		echo ---
		"$work/release-tool" render -image "ovnkube:$version" "dist/overlays/$overlay"
	} >"$new/ovnkube-$overlay.yaml"
done
# Clustered databases have three addresses.
sed -E -i 's/ssl:CONTROLPLANE:([0-9]+)/ssl:MEMBER1:\1,ssl:MEMBER2:\1,ssl:MEMBER3:\1/' "$new"/ovnkube-ha*.yaml
install -m 0755 dist/components/ha/update.sh "$new/ovnkube-ha-update.sh"
"$work/release-tool" render dist/monitoring >"$new/ovnkube-monitoring.yaml"

say "listing modules and their licenses"
"$work/release-tool" modules go-controller >"$new/go-modules.txt"
"$work/release-tool" licenses go-controller >"$new/go-modules-licenses.txt"

(cd "$new" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
rm -rf "$OUT/release"
mv "$new" "$OUT/release"
say "$OUT/release:"
cat "$OUT/release/SHA256SUMS"
