#!/usr/bin/env bash
# Fails if a generated file is stale, or if a document refers to something that does not exist. Everything is
# generated into a copy, so that the work tree is not modified, and every file is compared: there is no list of
# generated files to maintain.
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
# Go's test cache does not notice changes to files outside of the module.
(cd go-controller && go test -count=1 -vet=off ./hack/docs)
