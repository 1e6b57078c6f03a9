#!/usr/bin/env bash
# Installs MetalLB into a kin cluster: programs and images are built from its Go
# module; the manifest is that of the module with the changes in kustomization.yaml.
#
#   contrib/metallb/install.sh [CLUSTER | --build-only]
#
# KIN is the kin program, by default _output/bin/kin.
set -euo pipefail

CLUSTER=${1:-${KIN_CLUSTER:-kin}}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
KIN=${KIN:-$ROOT/_output/bin/kin}
KUBECTL=$(dirname "$KIN")/../kin/bin/kubectl
OUT=$ROOT/_output/metallb
MODULE=go.universe.tf/metallb
NAMESPACE=metallb-system

build() {
	local program
	for program in controller speaker; do
		mkdir -p "$OUT/$program"
		(cd "$HERE" && CGO_ENABLED=0 go build -ldflags '-s -w' -o "$OUT/$program/" "$MODULE/$program")
		[[ $OUT/$program.tar -nt $OUT/$program/$program ]] ||
			"$KIN" build image --name "kin.local/metallb-$program:1" --entrypoint "/$program" "$OUT/$program" "$OUT/$program.tar"
	done
	mkdir -p "$OUT/manifest"
	cp "$HERE/kustomization.yaml" "$OUT/manifest/"
	install -m 644 "$(cd "$HERE" && go list -m -f '{{.Dir}}' "$MODULE")/config/manifests/metallb-native.yaml" "$OUT/manifest/"
}

install_into_cluster() {
	local kubeconfig program
	kubeconfig=$("$KIN" get kubeconfig --name "$CLUSTER" --path)
	local kubectl=("$KUBECTL" --kubeconfig "$kubeconfig")
	for program in controller speaker; do
		"$KIN" load image --name "$CLUSTER" "$OUT/$program.tar"
	done
	"${kubectl[@]}" apply --kustomize "$OUT/manifest"
	"${kubectl[@]}" rollout status --namespace "$NAMESPACE" --timeout 2m deployment/controller daemonset/speaker
}

build
[[ $CLUSTER == --build-only ]] || install_into_cluster
