#!/usr/bin/env bash
# Fails where a generated file is stale. Everything is generated into a copy, so
# the work tree stays as it is, and every file is compared: there is no list of
# generated files to keep.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

COPY=$(mktemp -d)
trap 'rm -rf "$COPY"' EXIT
for dir in go-controller dist docs; do
	cp -a "$dir" "$COPY/"
done
if ! log=$("$COPY/go-controller/hack/generate.sh" 2>&1); then
	echo "$log" >&2
	exit 1
fi
stale=0
for dir in go-controller dist docs; do
	diff -ruN "$dir" "$COPY/$dir" || stale=1
done
if ((stale)); then
	echo "verify: generated files are stale: run make generate" >&2
	exit 1
fi
echo "verify: generated files are up to date"
