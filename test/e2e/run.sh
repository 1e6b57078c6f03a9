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
# Background processes ignore an interrupt from the keyboard.
trap 'trap - TERM; kill -TERM 0' INT TERM
(
	renice -n 19 $BASHPID >/dev/null
	factor=$(awk -v factor="${E2E_TIME_FACTOR:-1}" 'BEGIN { print 3 * factor }')
	export KIN_CPU_WEIGHT=10 KIN_WAIT=6m E2E_TIME_FACTOR=$factor
	failed=0
	# shellcheck disable=SC2086 # several packages
	run "$@" $rest || failed=1
	run "$@" -run "$beside" ./suite || failed=1
	${E2E_BESIDE:-} || failed=1
	exit $failed
) >"$log" 2>&1 &
failed=0
run "$@" -skip "$beside|$apart" "${measuring[@]}" || failed=1
echo "e2e: waiting for the tests that ran beside"
wait $! || failed=1
cat "$log"
exit $failed
