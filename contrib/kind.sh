#!/usr/bin/env bash
# Installs ovnkube on a kind cluster, for those who have Docker, kind and kubectl.
#
#   contrib/kind.sh [create|delete]
#
#   CLUSTER=ovn          name of the cluster
#   GATEWAY_MODE=shared  or local
#   IP_FAMILY=dual       or ipv4, ipv6
#   WORKERS=2            number of nodes besides the control plane
#
# make kind-e2e tests with it; make test does not: it uses kin, which needs no Docker. The
# machine's kernel must have the Open vSwitch module, which the nodes share.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CLUSTER=${CLUSTER:-ovn}
GATEWAY_MODE=${GATEWAY_MODE:-shared}
IP_FAMILY=${IP_FAMILY:-dual}
WORKERS=${WORKERS:-2}

fail() { echo "kind.sh: $*" >&2; exit 1; }

for program in docker kind kubectl; do
	command -v "$program" >/dev/null || fail "$program is not installed; contrib/kin needs none of docker, kind, kubectl"
done
[[ -d dist/overlays/$GATEWAY_MODE ]] || fail "GATEWAY_MODE is $GATEWAY_MODE; allowed: local, shared"

[[ $WORKERS =~ ^[0-9]+$ ]] || fail "WORKERS is $WORKERS; allowed: a number"
case $IP_FAMILY in # SUBNETS are ovnkube's: with the size of a node's part
ipv4) PODS=10.244.0.0/16 SUBNETS=10.244.0.0/16/24 SERVICES=10.96.0.0/16 ;;
ipv6) PODS=fd00:10:244::/48 SUBNETS=fd00:10:244::/48/64 SERVICES=fd00:10:96::/112 ;;
dual) PODS=10.244.0.0/16,fd00:10:244::/48 SUBNETS=10.244.0.0/16/24,fd00:10:244::/48/64 SERVICES=10.96.0.0/16,fd00:10:96::/112 ;;
*) fail "IP_FAMILY is $IP_FAMILY; allowed: dual, ipv4, ipv6" ;;
esac

case ${1:-create} in
delete)
	exec kind delete cluster --name "$CLUSTER"
	;;
create) ;;
*) fail "usage: contrib/kind.sh [create|delete]" ;;
esac

modprobe openvswitch 2>/dev/null || [[ -d /sys/module/openvswitch ]] || fail "the kernel has no openvswitch module"

kind create cluster --name "$CLUSTER" --config - <<EOF
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  ipFamily: $IP_FAMILY
  disableDefaultCNI: true
  kubeProxyMode: none
  podSubnet: $PODS
  serviceSubnet: $SERVICES
nodes:
  - role: control-plane
$(for ((i = 0; i < WORKERS; i++)); do echo "  - role: worker"; done)
EOF
docker build -f dist/images/Dockerfile -t ovnkube:latest \
	--build-arg VERSION="$(git describe --tags --always --dirty)" --build-arg COMMIT="$(git rev-parse HEAD)" .
kind load docker-image --name "$CLUSTER" ovnkube:latest

export KUBECONFIG
KUBECONFIG=$(mktemp)
trap 'rm -f "$KUBECONFIG"' EXIT
kind get kubeconfig --name "$CLUSTER" >"$KUBECONFIG"
read -r address _ < <(kubectl get node "$CLUSTER-control-plane" -o jsonpath='{.status.addresses[?(@.type=="InternalIP")].address}')
[[ $address != *:* ]] || address="[$address]"
kubectl apply -f dist/crds
kubectl kustomize "dist/overlays/$GATEWAY_MODE" |
	sed -e "s/CONTROLPLANE/$address/" -e "s|10.244.0.0/16/24|$SUBNETS|" -e "s|10.96.0.0/16|$SERVICES|" |
	kubectl apply -f -
kubectl wait --for=condition=Ready nodes --all --timeout=3m
echo "ready: kind export kubeconfig --name $CLUSTER"
