#!/usr/bin/env bash
# Generates, from the hand-written API types in pkg/apis, what must never be edited by hand: deepcopy functions,
# the clientset, listers and informers in pkg/generated, and the CustomResourceDefinitions in dist/crds.
#
# The generators run at pinned versions outside of this module, so that they neither appear in go.mod nor change
# with it. The output depends only on the types and this script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CODE_GENERATOR=k8s.io/code-generator/cmd
CODE_GENERATOR_VERSION=v0.34.4
CONTROLLER_GEN=sigs.k8s.io/controller-tools/cmd/controller-gen@v0.19.0

MODULE=$(go list -m)
OUT=pkg/generated
CRDS=../dist/crds

# Every API package, as "egressservice/v1". client-gen and informer-gen accept one package for each group and
# version, and ours share k8s.ovn.org/v1: each API has its own clients in pkg/generated, those of EgressService at
# its root.
mapfile -t APIS < <(cd pkg/apis && ls -d */v*/ | sed 's|/$||')
PACKAGES=()
for api in "${APIS[@]}"; do
	PACKAGES+=("./pkg/apis/$api")
done
out_of() { # api
	case $1 in
	egressservice/*) echo "$OUT" ;;
	*) echo "$OUT/${1%%/*}" ;;
	esac
}

HEADER=$(mktemp)
trap 'rm -f "$HEADER"' EXIT

generator() { # name, arguments
	local name=$1
	shift
	go run "$CODE_GENERATOR/$name@$CODE_GENERATOR_VERSION" --go-header-file "$HEADER" "$@"
}

find pkg/apis -name 'zz_generated.deepcopy.go' -delete
find "$OUT" -mindepth 1 -maxdepth 1 ! -name doc.go -exec rm -rf {} +

generator deepcopy-gen --output-file zz_generated.deepcopy.go "${PACKAGES[@]}"
for api in "${APIS[@]}"; do
	out=$(out_of "$api")
	generator client-gen --clientset-name versioned --input-base "$MODULE/pkg/apis" --input "$api" \
		--output-pkg "$MODULE/$out/clientset" --output-dir "$out/clientset"
	generator lister-gen --output-pkg "$MODULE/$out/listers" --output-dir "$out/listers" "./pkg/apis/$api"
	generator informer-gen --versioned-clientset-package "$MODULE/$out/clientset/versioned" \
		--listers-package "$MODULE/$out/listers" \
		--output-pkg "$MODULE/$out/informers" --output-dir "$out/informers" "./pkg/apis/$api"
done
gofmt -w "$OUT" pkg/apis

mkdir -p "$CRDS"
rm -f "$CRDS"/k8s.ovn.org_*.yaml
go run "$CONTROLLER_GEN" crd paths=./pkg/apis/... output:crd:artifacts:config="$CRDS"
echo "generated deepcopy functions, clients, listers, informers and CRDs of: ${APIS[*]}"
