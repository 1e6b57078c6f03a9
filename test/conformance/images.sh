#!/usr/bin/env bash
# Builds the container images that the suite's network specs need from parts that
# are available without a registry: programs that kin built or that come from
# the suite's module, and Debian packages.
#
#   images.sh KIN E2E_TEST BOOM PORTER ARCHIVES
#
# KIN is the kin program, E2E_TEST the suite, which knows the images' names, BOOM
# the program regression-issue-74839, PORTER the directory of the certificate that
# agnhost serves, ARCHIVES the directory to write to.
set -euo pipefail

KIN=$1 E2E_TEST=$2 BOOM=$3 PORTER=$4 ARCHIVES=$5
BUILT=$(dirname "$KIN")/../kin/bin

# The programs that specs run in the agnhost and dnsutils images, besides agnhost. Busybox
# replaces everything else; for the other images it does not matter what they contain.
PACKAGES=(bash bind9-dnsutils busybox-static curl iperf iproute2 iptables libc-bin netbase netcat-openbsd wget)

WORK=$(mktemp -d "$ARCHIVES/work-XXXXXX")
trap 'rm -rf "$WORK"' EXIT
ROOT=$WORK/root
mkdir -p "$ROOT" "$WORK/cache/archives/partial"

# named prints --name options with the suite's names for the given images.
named() {
	"$E2E_TEST" --list-images | grep -E "^conformance\.local/($1):" | sort | sed 's/^/--name=/'
}

# With an empty list of installed packages, apt downloads all dependencies.
: >"$WORK/status"
apt-get update -qq
apt-get install -qq --yes --download-only --no-install-recommends -o Debug::NoLocking=true -o APT::Sandbox::User=root \
	-o Dir::State::status="$WORK/status" -o Dir::Cache="$WORK/cache" "${PACKAGES[@]}" >/dev/null
for deb in "$WORK"/cache/archives/*.deb; do
	dpkg-deb --extract "$deb" "$ROOT"
done
rm -rf "$ROOT"/usr/share/{doc,man,info,locale,lintian}

# Do what the packages' maintainer scripts would do.
echo 'include /etc/ld.so.conf.d/*.conf' >"$ROOT/etc/ld.so.conf"
ldconfig -r "$ROOT"
ln -sf nc.openbsd "$ROOT/bin/nc"
ln -sf bash "$ROOT/bin/sh"
ln -sf xtables-nft-multi "$ROOT/usr/sbin/iptables"
ln -sf xtables-nft-multi "$ROOT/usr/sbin/ip6tables"
for name in $("$ROOT/bin/busybox" --list); do
	[[ -e $ROOT/bin/$name || -e $ROOT/sbin/$name || -e $ROOT/usr/bin/$name || -e $ROOT/usr/sbin/$name ]] || ln -s busybox "$ROOT/bin/$name"
done

printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$ROOT/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$ROOT/etc/group"
printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$ROOT/etc/nsswitch.conf"
mkdir -p "$ROOT/uploads"
mkdir -p "$ROOT/tmp" && chmod 1777 "$ROOT/tmp"
cp "$BUILT/agnhost" "$BUILT/coredns" "$PORTER/localhost.crt" "$PORTER/localhost.key" "$ROOT/"
mapfile -t NAMES < <(named 'agnhost|jessie-dnsutils|busybox|nginx|httpd')
"$KIN" build image "${NAMES[@]}" --entrypoint /agnhost --command pause "$ROOT" "$ARCHIVES/tools.tar"

single() { # image, program: an image of one program
	mkdir "$WORK/$1"
	cp "$2" "$WORK/$1/"
	mapfile -t NAMES < <(named "$1")
	"$KIN" build image "${NAMES[@]}" --entrypoint "/${2##*/}" "$WORK/$1" "$ARCHIVES/$1.tar"
}
single pause "$BUILT/pause"
single regression-issue-74839 "$BOOM"
