#!/usr/bin/env bash
# Runs every fuzz target, one after the other, for FUZZTIME: a duration (1m) or a number of inputs (200x). FUZZ is
# a regular expression for targets as printed, e.g. 'pkg/egressip FuzzPlan'. Failing inputs are written to
# testdata/fuzz in the package, where go test finds them from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzztime=${FUZZTIME:-1m} workers=${FUZZ_WORKERS:-2}
# With few inputs, coverage guidance does not help, and building all dependencies with coverage instrumentation
# takes minutes.
build=(-fuzz=.)
if [[ $fuzztime == *x ]]; then build=(); fi
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
cache=$(go env GOCACHE)/fuzz
failed=0

mapfile -t packages < <(grep -rlE '^func Fuzz[A-Z]\w*\(' --include='*_test.go' . | xargs -n1 dirname | sort -u)
for package in "${packages[@]}"; do
	name=${package#./}
	mapfile -t targets < <(grep -hoE '^func Fuzz[A-Z]\w*\(' "$package"/*_test.go | sed -E 's/func (\w+)\(/\1/' | sort)
	chosen=()
	for target in "${targets[@]}"; do
		if [[ "$name $target" =~ ${FUZZ:-.} ]]; then chosen+=("$target"); fi
	done
	if ((${#chosen[@]} == 0)); then continue; fi
	go test -vet=off -c "${build[@]}" -o "$bin/test" "$package"
	for target in "${chosen[@]}"; do
		start=$SECONDS
		if (cd "$package" && "$bin/test" -test.run='^$' -test.fuzz="^$target\$" -test.fuzztime="$fuzztime" \
			-test.parallel="$workers" -test.fuzzcachedir="$cache/$name/$target") >"$bin/log" 2>&1; then
			execs=$(grep -oE 'execs: [0-9]+' "$bin/log" | tail -1 || true)
			printf 'fuzz: %s %s: ok (%s, %ds)\n' "$name" "$target" "${execs:-execs: 0}" $((SECONDS - start))
		else
			printf 'fuzz: %s %s: FAILED\n' "$name" "$target"
			grep -vE '^fuzz: (elapsed|gathering)' "$bin/log" | tail -60
			failed=1
		fi
	done
done
exit "$failed"
