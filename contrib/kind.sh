#!/usr/bin/env bash
# Creates a kind cluster with ovnkube. Needs Docker, kind and kubectl.
#
#   contrib/kind.sh [create|delete]
#
#   CLUSTER=ovn          name of the cluster
#   GATEWAY_MODE=shared  or local
#   IP_FAMILY=dual       or ipv4, ipv6
#   WORKERS=2            number of nodes besides the control plane
#   HA=                  not empty: three control-plane nodes, with three masters and
#                        clustered databases (docs/high-availability.md)
#
# "make kind-e2e" runs tests on such a cluster; "make test" uses kin instead, which needs no Docker. The
# machine's kernel must have the Open vSwitch module, which the nodes share.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CLUSTER=${CLUSTER:-ovn}
GATEWAY_MODE=${GATEWAY_MODE:-shared}
IP_FAMILY=${IP_FAMILY:-dual}
WORKERS=${WORKERS:-2}
HA=${HA:-}

fail() { echo "kind.sh: $*" >&2; exit 1; }

for program in docker kind kubectl; do
	command -v "$program" >/dev/null || fail "$program is not installed; contrib/kin needs none of docker, kind, kubectl"
done
[[ $GATEWAY_MODE == @(local|shared) ]] || fail "GATEWAY_MODE is $GATEWAY_MODE; allowed: local, shared"

MASTERS=1
[[ -z $HA ]] || MASTERS=3
[[ $WORKERS =~ ^[0-9]+$ ]] || fail "WORKERS is $WORKERS; allowed: a number"
case $IP_FAMILY in # SUBNETS is for ovnkube: with the prefix length of each node's subnet
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
$(for ((i = 0; i < MASTERS; i++)); do echo "  - role: control-plane"; done)
$(for ((i = 0; i < WORKERS; i++)); do echo "  - role: worker"; done)
EOF
docker build -f dist/images/Dockerfile -t ovnkube:latest \
	--build-arg VERSION="$(git describe --tags --always --dirty)" --build-arg COMMIT="$(git rev-parse HEAD)" .
kind load docker-image --name "$CLUSTER" ovnkube:latest

export KUBECONFIG
KUBECONFIG=$(mktemp)
trap 'rm -f "$KUBECONFIG"' EXIT
kind get kubeconfig --name "$CLUSTER" >"$KUBECONFIG"
# brackets prints an address in the form that can precede a port.
brackets() { if [[ $1 == *:* ]]; then echo "[$1]"; else echo "$1"; fi; }

masters=()
for ((i = 1; i <= MASTERS; i++)); do
	name=$CLUSTER-control-plane
	((i == 1)) || name+=$i
	addresses=$(kubectl get node "$name" -o jsonpath='{.status.addresses[?(@.type=="InternalIP")].address}')
	masters+=("$(brackets "${addresses%% *}")")
done
# members PORT prints the addresses at which clients reach a database.
members() { local IFS=,; echo "${masters[*]/%/:$1}" | sed 's/\(^\|,\)/\1ssl:/g'; }

api=${masters[0]}
if [[ -n $HA ]]; then # kind's load balancer is in front of the API servers, whose certificates have its name only
	api=$CLUSTER-external-load-balancer
fi

mkdir -p _output
OVERLAY=$(mktemp -d _output/kind.XXXXXX)
trap 'rm -rf "$KUBECONFIG" "$OVERLAY"' EXIT
cat >"$OVERLAY/kustomization.yaml" <<EOF
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../dist/overlays/$GATEWAY_MODE]
components: [${HA:+../../dist/components/ha}]
patches: [{path: config.yaml}]
EOF
cat >"$OVERLAY/config.yaml" <<EOF
apiVersion: v1
kind: ConfigMap
metadata: {name: ovnkube, namespace: ovn-kubernetes}
data:
  northbound: $(members 6641)
  masters-southbound: $(members 6643)
  ovnkube.conf: |
    [default]
    cluster-subnets=$SUBNETS
    mtu=1400
    [kubernetes]
    apiserver=https://$api:6443
    service-cidrs=$SERVICES
    [ovnsouth]
    address=$(members 6642)
    [gateway]
    nodeport=true
    [ovnkubernetesfeature]
    enable-egress-service=true
    enable-egress-ip=true
    enable-multi-external-gateway=true
EOF
kubectl apply -f dist/crds
kubectl apply -k "$OVERLAY"
kubectl wait --for=condition=Ready nodes --all --timeout=3m
echo "ready: kind export kubeconfig --name $CLUSTER"
