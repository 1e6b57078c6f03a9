#!/usr/bin/env bash
# Tests the image and the manifests on a kind cluster, for machines with Docker, kind and
# kubectl: pods on different nodes, a Service, the way out, and an EgressIP that moves when
# its node may not have it any more. Nodes and Docker fetch agnhost from its registry.
#
#   test/kind/run.sh
#
#   CLUSTER=ovn-e2e, GATEWAY_MODE, IP_FAMILY (dual or ipv4), as of contrib/kind.sh
#   KEEP=1               leaves the cluster
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export CLUSTER=${CLUSTER:-ovn-e2e} WORKERS=2
AGNHOST=${AGNHOST:-registry.k8s.io/e2e-test-images/agnhost:2.53}
OUTSIDE=$CLUSTER-outside
KUBECONFIG=$(mktemp)
export KUBECONFIG

say() { echo "kind-e2e: $*"; }
fail() { say "$*" >&2; exit 1; }

end() {
	local status=$?
	if ((status)); then
		kubectl get nodes,egressips -o wide || true
		kubectl get pods --all-namespaces -o wide || true
		kubectl -n ovn-kubernetes logs deployment/ovnkube-master --tail=100 || true
	fi
	docker rm --force "$OUTSIDE" >/dev/null 2>&1 || true
	[[ -n ${KEEP:-} ]] || contrib/kind.sh delete || true
	rm -f "$KUBECONFIG"
	exit "$status"
}
case ${IP_FAMILY:-dual} in
dual | ipv4) ;;
*) fail "IP_FAMILY: value \"$IP_FAMILY\": the test uses IPv4 addresses of Docker's network; allowed: dual or ipv4" ;;
esac
trap end EXIT

# source_of prints the address that a server sees when a pod asks it: pod, server.
source_of() {
	local answer
	answer=$(kubectl exec "$1" -- curl --silent --show-error --max-time 5 "http://$2:8080/clientip") || return
	echo "${answer%:*}"
}

# expect_source waits until a server sees an address of a pod: pod, server, address.
expect_source() {
	local seen deadline=$((SECONDS + 60))
	until seen=$(source_of "$1" "$2") && [[ $seen == "$3" ]]; do
		((SECONDS < deadline)) || fail "$2 sees pod $1 as ${seen:-nothing}, not as $3"
		sleep 1
	done
	say "$2 sees pod $1 as $3"
}

field() { kubectl get "$1" -o jsonpath="$2"; }

contrib/kind.sh create
kind get kubeconfig --name "$CLUSTER" >"$KUBECONFIG"
kubectl -n kube-system rollout status deployment/coredns --timeout=3m

docker run --detach --name "$OUTSIDE" --network kind "$AGNHOST" netexec --http-port=8080 >/dev/null
outside=$(docker inspect -f '{{.NetworkSettings.Networks.kind.IPAddress}}' "$OUTSIDE")
# Docker gives addresses from the low end of its network; this one is of the high end of a /24 in it.
egress=${outside%.*}.250

pod() { # name, node
	kubectl apply -f - <<POD
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: $1}}
spec:
  nodeSelector: {kubernetes.io/hostname: $2}
  containers:
    - {name: agnhost, image: "$AGNHOST", args: [netexec, --http-port=8080]}
POD
}
pod client "$CLUSTER-worker"
pod server "$CLUSTER-worker2"
kubectl expose pod server --port=8080
kubectl wait --for=condition=Ready pod/client pod/server --timeout=3m

client=$(field pod/client '{.status.podIP}')
expect_source client "$(field pod/server '{.status.podIP}')" "$client"
expect_source client server "$client" # by DNS, and the address of the Service

node() { field "node/$1" '{.status.addresses[?(@.type=="InternalIP")].address}' | cut -d' ' -f1; }
expect_source client "$outside" "$(node "$CLUSTER-worker")"

kubectl label node "$CLUSTER-worker2" k8s.ovn.org/egress-assignable=
kubectl apply -f - <<EGRESSIP
apiVersion: k8s.ovn.org/v1
kind: EgressIP
metadata: {name: kind-e2e}
spec:
  egressIPs: ["$egress"]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
  podSelector: {matchLabels: {app: client}}
EGRESSIP
expect_source client "$outside" "$egress"
kubectl wait --for=condition=Programmed egressip/kind-e2e --timeout=1m

kubectl label node "$CLUSTER-control-plane" k8s.ovn.org/egress-assignable=
kubectl label node "$CLUSTER-worker2" k8s.ovn.org/egress-assignable-
kubectl wait "--for=jsonpath={.status.items[0].node}=$CLUSTER-control-plane" egressip/kind-e2e --timeout=1m
expect_source client "$outside" "$egress"

kubectl delete egressip kind-e2e
expect_source client "$outside" "$(node "$CLUSTER-worker")"
say "all of it works"
