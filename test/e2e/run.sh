#!/bin/bash
# Runs the end-to-end tests: run.sh REGEXP PACKAGES [GO-TEST-FLAG...].
#
# There is one cluster at a time, since many tests measure. If neither tests nor packages are named, all
# tests run. The command in E2E_BESIDE, if set, runs beside them when no other process needs the CPU.
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

selected=(-skip "$apart")
if [[ -n $tests ]]; then
	selected=(-run "$tests")
elif [[ -z $packages ]]; then
	packages=$all
fi

# Background processes ignore an interrupt from the keyboard.
trap 'trap - TERM; kill -TERM 0' INT TERM
beside='' log=$built/beside.log
if [[ -n ${E2E_BESIDE:-} ]]; then
	(
		renice -n 19 $BASHPID >/dev/null
		chrt --idle --pid 0 $BASHPID || true # some containers do not allow it
		$E2E_BESIDE
	) >"$log" 2>&1 &
	beside=$!
fi
failed=0
# shellcheck disable=SC2086 # several packages
go test -vet=off -count=1 -p 1 "${selected[@]}" "$@" ${packages:-./...} || failed=1
if [[ -n $beside ]]; then
	echo "e2e: waiting for what runs beside"
	wait "$beside" || failed=1
	cat "$log"
fi
exit $failed
