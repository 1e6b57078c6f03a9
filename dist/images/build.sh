#!/usr/bin/env bash
# Builds the image of dist/images/Dockerfile without a container engine, as an OCI archive:
# Debian's packages, unpacked by mmdebstrap, and the programs built from this repository.
#
#   dist/images/build.sh DIRECTORY      # the binaries are in its bin; the image is written to it
#
#   IMAGE=ovnkube:latest                # name of the image, with a tag
#   IMAGE_ROOT=DIRECTORY/image-root     # where the unpacked packages are kept
#
# The same packages and the same commit give the same bytes, wherever the repository is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
OUT=$(realpath "${1:?usage: dist/images/build.sh DIRECTORY}")

say() { echo "image: $*"; }
fail() { echo "image: $*" >&2; exit 1; }

((EUID == 0)) || fail "run this as root: packages are unpacked with their owners"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is not installed: make deps installs it"

# Files are dated by their last change in git, so that a clean build and a repeated one give the same result.
changed() { git log -1 --format=%ct -- "${@:-.}"; }
version=$(git describe --tags --always --dirty)

work=$(mktemp -d "$OUT/image-XXXXXX")
trap 'rm -rf "$work"' EXIT

# The packages are unpacked once for each version of the list; make clean removes them.
root=${IMAGE_ROOT:-$OUT/image-root}
stamp=$(sha256sum dist/images/packages.txt dist/images/build.sh | sha256sum)
if [[ $(cat "$root/stamp" 2>/dev/null) != "$stamp" ]]; then
	say "unpacking the packages of dist/images/packages.txt, and what they need"
	# shellcheck disable=SC2016 # mmdebstrap's shell expands $1
	SOURCE_DATE_EPOCH=$(changed dist/images/packages.txt dist/images/build.sh) \
		mmdebstrap --quiet --variant=minbase --aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
		--include="$(paste -sd, dist/images/packages.txt)" \
		--customize-hook='dpkg-query --admindir="$1/var/lib/dpkg" -W -f "\${Package} \${Version}\n" >"$1/usr/share/ovnkube-packages"' \
		--customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/* "$1"/etc/machine-id "$1"/etc/hostname "$1"/etc/resolv.conf' \
		--customize-hook="copy-out /usr/share/ovnkube-packages $work" \
		bookworm "$work/root.tar"
	rm -rf "$root"
	mkdir "$root"
	mv "$work/root.tar" "$work/ovnkube-packages" "$root/"
	echo "$stamp" >"$root/stamp"
fi
cp "$root/ovnkube-packages" "$OUT/image-packages.txt"

mkdir -p "$work/files/usr/bin"
install -m 0755 "$OUT/bin/ovnkube" "$OUT/bin/ovn-k8s-cni-overlay" dist/images/start "$work/files/usr/bin/"

say "writing $OUT/image.tar"
digest=$(cd dist/images && go run . -o "$OUT/image.tar" -root "$root/root.tar" -files "$work/files" -name "${IMAGE:-ovnkube:latest}" -created "$(changed)" \
	-label org.opencontainers.image.title=ovnkube \
	-label org.opencontainers.image.licenses=Apache-2.0 \
	-label org.opencontainers.image.version="$version" \
	-label org.opencontainers.image.revision="$(git rev-parse HEAD)" \
	-label org.opencontainers.image.base.name=debian:bookworm)
say "$digest, $(du -h "$OUT/image.tar" | cut -f1), packages in $OUT/image-packages.txt"
