#!/usr/bin/env bash
# Installs the Debian packages that building, testing and the local cluster
# need, and lists them. With --check it only lists what is missing. Packages given as
# arguments, which only single tests need, are installed as well.
#
# No daemon is started: the clusters run their own daemons in separate
# namespaces, which must not come into contact with daemons of the machine.
set -euo pipefail

PACKAGES=(
	ca-certificates git make        # fetch and build
	gcc libc6-dev                   # go test -race
	openvswitch-common openvswitch-switch
	ovn-common ovn-central ovn-host # the databases, northd, ovn-controller, their tools and schemas
	containerd runc busybox-static  # pods of the local cluster
	iproute2 iptables nftables ethtool conntrack procps kmod util-linux
	frr                             # BFD peers of external gateways, the router of MetalLB's test
	mmdebstrap                      # the container image, without a container engine
	debian-archive-keyring          # the image is of Debian, also where it is built on Ubuntu
	prometheus                      # promtool, which checks metrics, alerts and their tests
	openssl                         # certificates in the tests of TLS connections
	shellcheck                      # make lint
	tcpdump                         # to inspect what a test saw
)
declare -A UNITS=( # the daemons that a package would start
	[openvswitch-switch]="openvswitch-switch ovs-vswitchd ovsdb-server"
	[ovn-central]="ovn-central ovn-northd ovn-ovsdb-server-nb ovn-ovsdb-server-sb"
	[ovn-host]="ovn-host ovn-controller"
	[containerd]="containerd"
	[frr]="frr"
	[prometheus]="prometheus"
)
GO_MINIMUM=1.21 # from this version on, the go command fetches the version that go.mod requires

say() { echo "install-deps: $*"; }
fail() { say "$*" >&2; exit 1; }

distribution() { (. /etc/os-release 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}"); }

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

go_is_enough() { # version
	[[ $(printf '%s\n' "$GO_MINIMUM" "$1" | sort -V | head -1) == "$GO_MINIMUM" ]]
}

# missing prints the packages to install, one per line.
missing() {
	local p
	for p in "${PACKAGES[@]}"; do
		installed "$p" || echo "$p"
	done
}

# need_go prints the package that provides a usable go command, unless there is one already.
need_go() {
	local have
	have=$(go env GOVERSION 2>/dev/null || true)
	[[ -n $have ]] && go_is_enough "${have#go}" && return
	echo golang-go
}

install() { # packages
	export DEBIAN_FRONTEND=noninteractive
	local policy=/usr/sbin/policy-rc.d p unit
	if [[ ! -e $policy ]]; then
		# We created the file, so it is removed however this script ends.
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod +x "$policy"
	fi
	apt-get update -qq || fail "apt-get update failed"
	if [[ " $* " == *" golang-go "* ]]; then
		local candidate
		candidate=$(apt-cache policy golang-go | awk '/Candidate:/{print $2}')
		go_is_enough "${candidate#*:}" ||
			fail "this machine's packages offer Go ${candidate:-nothing}: install Go $GO_MINIMUM or newer yourself"
	fi
	apt-get install -y -qq --no-install-recommends "$@" >/dev/null || fail "apt-get could not install: $*"
	# Packages that we installed must not start daemons at the next boot either.
	if [[ -d /run/systemd/system ]]; then
		for p in "$@"; do
			for unit in ${UNITS[$p]:-}; do
				systemctl disable --quiet "$unit" 2>/dev/null || true
			done
		done
	fi
}

case " $(distribution) " in
*" debian "* | *" ubuntu "*) ;;
*) fail "this needs Debian or Ubuntu: the local cluster runs the OVN, Open vSwitch and containerd of their packages" ;;
esac

CHECK=
if [[ ${1:-} == --check ]]; then
	CHECK=1
	shift
fi
PACKAGES+=("$@")
[[ -n $CHECK ]] || ((EUID == 0)) || fail "run this as root: packages are installed, and clusters live in namespaces only root can make"

mapfile -t WANT < <(missing; need_go)
if ((${#WANT[@]} == 0)); then
	say "all packages are there"
	exit 0
fi
if [[ -n $CHECK ]]; then
	fail "missing packages: ${WANT[*]}"
fi
say "installing ${WANT[*]}"
install "${WANT[@]}"
say "installed ${WANT[*]}"
