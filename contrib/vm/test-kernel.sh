#!/usr/bin/env bash
# The two parts of "make test-kernel": programs are built on this machine,
# where that is quick, and run in the guest.
#
#   test-kernel.sh build DIR     builds every test that creates namespaces, as a program
#   test-kernel.sh run DIR       runs them, then creates a cluster for each gateway mode
#
# KERNEL_RACE    set: build the tests below the cluster with the race detector
# KERNEL_TESTS   regular expression of the packages below the cluster to run
# KERNEL_MODES   gateway modes to create a cluster for ("shared local"; "" for none)
# KERNEL_CHECKS  regular expression of the tests to run on clusters of two nodes
# KERNEL_E2E     more tests to run in each mode, on clusters of three nodes: a regular
#                expression of tests of the suite; "" for none
# KERNEL_PODS    number of pods with EgressIPs on one node whose flows and connections are counted; none
#                by default
set -euo pipefail

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
HARNESS=testing/netnstest
MODES=${KERNEL_MODES-shared local}
CHECKS=${KERNEL_CHECKS:-.}
E2E=${KERNEL_E2E-}

say() { echo "test-kernel: $*"; }

build() { # directory
	local dir=$1 package race=() list=$1/packages
	[[ -n ${KERNEL_RACE:-} ]] && race=(-race)
	rm -rf "$dir" && mkdir -p "$dir"
	cd "$TOP/go-controller"
	go list -f '{{.Dir}} {{join .TestImports ","}},{{join .XTestImports ","}}' ./... | awk -v h="$HARNESS" 'index($2, h) {print $1}' >"$list"
	echo "$TOP/contrib/kin/internal/machine" >>"$list"
	while read -r package; do
		[[ ${package#"$TOP"/} =~ ${KERNEL_TESTS:-.} ]] || continue
		say "building the tests of ${package#"$TOP"/}"
		(cd "$package" && CGO_ENABLED=$((${#race[@]})) go test -c "${race[@]}" -o "$dir/$(program "$package")" .)
	done <"$list"
	[[ -n $MODES ]] || return 0
	cd "$TOP/test/e2e"
	say "building the end-to-end tests"
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$dir/probe" ./probe
	go test -c -o "$dir/suite" ./suite
}

# program prints the file name of a package's test program.
program() { local name=${1#"$TOP"/}; echo "${name//\//-}.test"; }

# time_factor measures how much slower than on an ordinary machine processes
# start, which is most of what tests wait for. On an ordinary machine, 200 starts take 0.4 s.
time_factor() {
	local began ended
	began=$(date +%s%N)
	for _ in {1..200}; do
		/bin/true
	done
	ended=$(date +%s%N)
	echo $(((ended - began) / 400000000 + 1))
}

FAILED=()
# attempt runs one test program in its directory and records its result.
# The output is kept; after a failure the end of it is shown.
attempt() { # name directory command...
	local name=$1 directory=$2 log=$VM_OUT/$1.log began=$SECONDS
	shift 2
	if (cd "$directory" && "$@") >"$log" 2>&1; then
		say "ok    $name ($((SECONDS - began)) s)"
	else
		say "FAIL  $name ($((SECONDS - began)) s)"
		grep -E '^ *--- FAIL|^panic' "$log" || true
		tail -n 40 "$log"
		FAILED+=("$name")
	fi
}

run() { # directory
	local dir=$1 package factor
	factor=$(time_factor)
	say "processes start about $factor times slower than on an ordinary machine"
	while read -r package; do
		[[ ${package#"$TOP"/} =~ ${KERNEL_TESTS:-.} ]] || continue
		attempt "$(program "$package")" "$package" "$dir/$(program "$package")" -test.timeout "$((20 * factor))m"
	done <"$dir/packages"
	export KIN=$TOP/_output/bin/kin KIN_DATAPATH=kernel KIN_WAIT=$((2 * factor))m
	export E2E_PROBE=$dir/probe E2E_TIME_FACTOR=$factor E2E_LOGS=$VM_OUT/e2e-logs
	for mode in $MODES; do
		attempt "kernel-$mode" "$TOP/test/e2e/suite" "$dir/suite" -test.v -test.timeout "$((30 * factor))m" -test.run "^Test${mode^}Kernel$/($CHECKS)"
		if [[ -n $E2E ]]; then
			attempt "suite-$mode" "$TOP/test/e2e/suite" "$dir/suite" -test.v -test.timeout "$((60 * factor))m" -test.run "^Test${mode^}Gateway$/^($E2E)$"
		fi
	done
	if ((${#FAILED[@]})); then
		say "failed: ${FAILED[*]}; what they printed is in _output/vm/out"
		exit 1
	fi
	say "all passed"
}

case ${1:-} in
build | run) "$1" "$(realpath -m "${2:?which directory?}")" ;;
*) say "usage: test-kernel.sh build|run DIR" >&2; exit 2 ;;
esac
