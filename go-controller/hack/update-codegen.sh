#!/usr/bin/env bash
# Generates, from the hand-written API types in pkg/apis, what must never be
# edited by hand: deepcopy functions, the clientset, listers and informers in
# pkg/generated, and the CustomResourceDefinitions in dist/crds.
#
# The generators run at pinned versions outside of this module, so that they
# neither appear in go.mod nor change with it. The output is a function of the
# types and of this script alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CODE_GENERATOR=k8s.io/code-generator/cmd
CODE_GENERATOR_VERSION=v0.34.4
CONTROLLER_GEN=sigs.k8s.io/controller-tools/cmd/controller-gen@v0.19.0

MODULE=$(go list -m)
OUT=pkg/generated
CRDS=../dist/crds

# Every API package, as "egressservice/v1".
mapfile -t APIS < <(cd pkg/apis && ls -d */v*/ | sed 's|/$||')
PACKAGES=()
CLIENT_INPUTS=()
for api in "${APIS[@]}"; do
	PACKAGES+=("./pkg/apis/$api")
	CLIENT_INPUTS+=(--input "$api")
done

HEADER=$(mktemp)
trap 'rm -f "$HEADER"' EXIT

generator() { # name, arguments
	local name=$1
	shift
	go run "$CODE_GENERATOR/$name@$CODE_GENERATOR_VERSION" --go-header-file "$HEADER" "$@"
}

find pkg/apis -name 'zz_generated.deepcopy.go' -delete
rm -rf "$OUT/clientset" "$OUT/listers" "$OUT/informers"

generator deepcopy-gen --output-file zz_generated.deepcopy.go "${PACKAGES[@]}"
generator client-gen --clientset-name versioned --input-base "$MODULE/pkg/apis" "${CLIENT_INPUTS[@]}" \
	--output-pkg "$MODULE/$OUT/clientset" --output-dir "$OUT/clientset"
generator lister-gen --output-pkg "$MODULE/$OUT/listers" --output-dir "$OUT/listers" "${PACKAGES[@]}"
generator informer-gen --versioned-clientset-package "$MODULE/$OUT/clientset/versioned" \
	--listers-package "$MODULE/$OUT/listers" \
	--output-pkg "$MODULE/$OUT/informers" --output-dir "$OUT/informers" "${PACKAGES[@]}"
gofmt -w "$OUT" pkg/apis

mkdir -p "$CRDS"
rm -f "$CRDS"/k8s.ovn.org_*.yaml
go run "$CONTROLLER_GEN" crd paths=./pkg/apis/... output:crd:artifacts:config="$CRDS"
echo "generated deepcopy functions, clients, listers, informers and CRDs of: ${APIS[*]}"
