#!/usr/bin/env bash
# Fails where what hack/update-codegen.sh generates is stale. It generates into a
# copy, so the work tree stays as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

COPY=$(mktemp -d)
trap 'rm -rf "$COPY"' EXIT
mkdir -p "$COPY/go-controller/pkg"
cp -a go.mod go.sum hack "$COPY/go-controller/"
cp -a pkg/apis pkg/generated "$COPY/go-controller/pkg/"

if ! log=$("$COPY/go-controller/hack/update-codegen.sh" 2>&1); then
	echo "$log" >&2
	exit 1
fi
stale=0
for dir in go-controller/pkg/apis go-controller/pkg/generated dist/crds; do
	diff -ruN "../$dir" "$COPY/$dir" || stale=1
done
if ((stale)); then
	echo "generated files are stale: run make generate" >&2
	exit 1
fi
