#!/usr/bin/env bash
# Runs every fuzz target there is, one after the other, for FUZZTIME: a duration
# (1m) or a number of inputs (200x). FUZZ is a regular expression of targets as they
# are printed, e.g. 'pkg/egressip FuzzPlan'. What makes a target fail is written
# below testdata/fuzz of its package, where go test finds it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzztime=${FUZZTIME:-1m} workers=${FUZZ_WORKERS:-2}
# A few inputs are too few to learn from which code they reach, and to build all
# dependencies so that they tell takes minutes.
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
