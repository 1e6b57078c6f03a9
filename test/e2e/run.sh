#!/bin/bash
# Runs the end-to-end tests: run.sh REGEXP PACKAGES [GO-TEST-FLAG...].
#
# If neither tests nor packages are named, all tests run, on two clusters at a time: those
# that measure run one after the other, and all others in the background. The background
# tests have the lowest CPU priority and more time, so that measurements reflect ovnkube
# and not the other tests. They are followed by the command in E2E_BESIDE, if set.
set -euo pipefail
cd "$(dirname "$0")"
tests=$1 packages=$2
shift 2

# Packages and tests that measure, and tests of the same packages that do not.
measuring=(./metallb ./suite)
beside='^(TestAdmission|TestInstalled|TestIPv4|TestIPv6|TestLocalPaths|TestSharedPaths)$'
# Tests of separate make targets.
apart='^(TestUpgrade|TestHighAvailabilityChaos|TestLocalKernel|TestSharedKernel)$'

run() { go test -vet=off -count=1 -p 1 "$@"; }

# What runs in the background, with packages in rest and tests in beside.
run_beside() {
	renice -n 19 $BASHPID >/dev/null
	# Where the kernel schedules sessions as groups, priorities only count within a session.
	echo 19 2>/dev/null >"/proc/$BASHPID/autogroup" || true
	E2E_TIME_FACTOR=$(awk -v factor="${E2E_TIME_FACTOR:-1}" 'BEGIN { print 3 * factor }')
	export KIN_CPU_WEIGHT=10 KIN_WAIT=6m E2E_TIME_FACTOR
	failed=0
	# shellcheck disable=SC2086 # several packages
	run "$@" $rest || failed=1
	run "$@" -run "$beside" ./suite || failed=1
	${E2E_BESIDE:-} || failed=1
	exit $failed
}

if [[ -n $tests || -n $packages ]]; then
	selected=(-skip "$apart")
	if [[ -n $tests ]]; then
		selected=(-run "$tests")
	fi
	# shellcheck disable=SC2086 # several packages
	run "${selected[@]}" "$@" ${packages:-./...}
	exit
fi

# All other packages, so that new ones are tested, too.
rest=$(go list ./... | grep -v -x -F "$(go list "${measuring[@]}")")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export rest beside
export -f run run_beside
# A session of its own is a group for the scheduler (see run_beside).
setsid bash -euo pipefail -c 'run_beside "$@"' run_beside "$@" >"$log" 2>&1 &
background=$!
trap 'trap - TERM; kill -TERM -- "-$background"; kill -TERM 0' INT TERM
failed=0
run "$@" -skip "$beside|$apart" "${measuring[@]}" || failed=1
echo "e2e: waiting for the tests that ran beside"
wait $background || failed=1
cat "$log"
exit $failed
