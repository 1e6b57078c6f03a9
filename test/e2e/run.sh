#!/bin/bash
# Runs the end-to-end tests: run.sh REGEXP PACKAGES [GO-TEST-FLAG...].
#
# There is one cluster at a time, since many tests measure. If neither tests nor packages are
# named, all tests run, with the command in E2E_BESIDE, if set, at the lowest CPU priority beside them.
set -euo pipefail
cd "$(dirname "$0")"
tests=$1 packages=$2
shift 2

# Tests of separate make targets, and those of a full run.
apart='TestUpgrade|TestHighAvailabilityChaos|TestLocalKernel|TestSharedKernel'
all=./...
if [[ -z ${E2E_FULL:-} ]]; then
	apart+='|TestIPv4|TestLocalPaths|TestOptions'
	all=$(go list ./... | grep -v /metallb$)
fi
apart="^($apart)\$"

# All clusters load the same probe; without this, every package would build it.
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
if [[ -z ${E2E_PROBE:-} ]]; then
	export E2E_PROBE=$built/probe
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$E2E_PROBE" ./probe
fi

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

log=$built/beside.log
# Background processes ignore an interrupt from the keyboard.
trap 'trap - TERM; kill -TERM 0' INT TERM
(
	renice -n 19 $BASHPID >/dev/null
	${E2E_BESIDE:-}
) >"$log" 2>&1 &
failed=0
# shellcheck disable=SC2086 # several packages
run -skip "$apart" "$@" $all || failed=1
echo "e2e: waiting for what runs beside"
wait $! || failed=1
cat "$log"
exit $failed
