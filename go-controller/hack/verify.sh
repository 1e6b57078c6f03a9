#!/usr/bin/env bash
# Fails where a generated file is stale, or a document names what is not there.
# Everything is generated into a copy, so the work tree stays as it is, and every
# file is compared: there is no list of generated files to keep.
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
# Go's cache of test results does not see files outside of the module.
(cd go-controller && go test -count=1 -vet=off ./hack/docs)
