#!/usr/bin/env bash
# Runs the network specs of the Kubernetes end-to-end suite on a kin cluster of
# its own, from a host outside it: run.sh OUT, where KIN is the kin program and
# OUT the directory for programs and results. GATEWAY_MODE, CONFORMANCE_FOCUS
# (a regular expression), CONFORMANCE_PROCS and CONFORMANCE_KEEP=1 (leave the
# cluster) are optional.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

OUT=$1
: "${KIN:?the kin program}" "${GATEWAY_MODE:=shared}" "${CONFORMANCE_PROCS:=6}" "${CONFORMANCE_FOCUS:=}"
BUILT=$(dirname "$KIN")/../kin/bin # the output of kin build
RESULTS=$OUT/$GATEWAY_MODE
NAME=conformance-$GATEWAY_MODE
OUTSIDE=tester

say() { echo "conformance: $*"; }
version() { (cd "$1" && go list -m -f '{{.Version}}' k8s.io/kubernetes); }

build() {
	local want have
	want=$(version ../../contrib/kin/kubernetes) have=$(version .)
	if [[ $want != "$have" ]]; then
		say "test/conformance/go.mod has Kubernetes $have, kin runs $want" >&2
		exit 1
	fi
	say "building the suite of Kubernetes $want (minutes, the first time)"
	export CGO_ENABLED=0
	go build -trimpath -ldflags '-s -w' -o "$OUT/" github.com/onsi/ginkgo/v2/ginkgo k8s.io/kubernetes/test/images/regression-issue-74839
	# Without vet, which would load all of Kubernetes. The flags are those of kin's
	# build, so that compiled packages are reused.
	go test -c -vet=off -trimpath -ldflags '-s -w' -o "$OUT/e2e.test" .
	if [[ $OUT/images/tools.tar -nt images.sh && $OUT/images/tools.tar -nt go.mod && $OUT/images/tools.tar -nt "$BUILT/coredns" ]]; then
		return
	fi
	say "making its images"
	rm -rf "$OUT/images"
	mkdir -p "$OUT/images"
	./images.sh "$KIN" "$OUT/e2e.test" "$OUT/regression-issue-74839" \
		"$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images/agnhost/porter" "$OUT/images"
}

create() {
	"$KIN" delete cluster --name "$NAME"
	"$KIN" create cluster --install processes --name "$NAME" --nodes 3 --ip-family dual --gateway-mode "$GATEWAY_MODE"
	local node image
	for image in "$OUT"/images/*.tar; do
		"$KIN" load image --name "$NAME" "$image"
	done
	# The suite reaches the cluster as users do: from a host on the nodes'
	# network, where MetalLB announces the addresses that it assigns.
	"$KIN" host add --name "$NAME" "$OUTSIDE" --ip 172.18.0.100 --ip fc00:f853:ccd:e793::64
	# The host's address is not in any network of the nodes: this is how specs recognize that an
	# endpoint has seen it.
	outside ip address add 192.0.2.100/32 dev lo
	outside ip route replace 172.18.0.0/16 dev eth0 src 192.0.2.100
	"$KIN" exec --name "$NAME" wire -- ip route add 192.0.2.100 via 172.18.0.100
	export KUBECONFIG=$RESULTS/kubeconfig
	"$KIN" get kubeconfig --name "$NAME" | sed 's|server: .*|server: https://172.18.0.2:6443|' >"$KUBECONFIG"
	../../contrib/metallb/install.sh "$NAME"
	outside "$BUILT/kubectl" apply -f metallb.yaml
	# Each node gets a zone of its own: some specs are about traffic that stays in a zone. All nodes get the
	# same role: the control plane runs pods here, but the controller that allocates
	# endpoints to zones ignores nodes with the control-plane label.
	for node in $(outside "$BUILT/kubectl" get nodes -o name); do
		outside "$BUILT/kubectl" label "$node" "topology.kubernetes.io/zone=${node##*/}" node-role.kubernetes.io/control-plane- >/dev/null
	done
}

# outside runs a command in the network namespace of the outside host, with the file system of
# this machine.
outside() {
	nsenter --net="/proc/$(cut -d' ' -f1 "${KIN_STATE:-/var/lib/kin}/$NAME/machines/$OUTSIDE/init.pid")/ns/net" "$@"
}

# progress joins the two lines with which ginkgo begins the report of a spec.
progress() {
	awk '/^(•|S|P) \[/ { state = $0; getline; printf "%-30s %s\n", state, $0; fflush() }'
}

run() {
	local skip=() line
	while IFS= read -r line; do
		[[ -z $line || $line == \#* ]] || skip+=("--skip=${line%% # *}")
	done <skip.txt
	outside "$OUT/ginkgo" -v --procs="$CONFORMANCE_PROCS" --timeout=4h --no-color --silence-skips \
		--focus="\[sig-network\].*$CONFORMANCE_FOCUS" "${skip[@]}" \
		--output-dir="$RESULTS" --junit-report=junit.xml "$OUT/e2e.test" -- \
		--kubeconfig="$KUBECONFIG" --provider=skeleton --num-nodes=3 --kubectl-path="$BUILT/kubectl" \
		--failures="$RESULTS/failures" 2>&1 | tee "$RESULTS/output" | progress
}

export KUBE_TEST_REPO_LIST=$PWD/registries.yaml
mkdir -p "$OUT"
build
rm -rf "$RESULTS"
mkdir -p "$RESULTS/failures"
create
status=0
run || status=$?
grep -E '^(Ran |PASS|FAIL|SUCCESS)|Passed \|' "$RESULTS/output" || tail -30 "$RESULTS/output"
if ((status != 0)); then
	say "what failing specs said is in $RESULTS/failures, all output in $RESULTS/output"
	for machine in $("$KIN" get nodes --name "$NAME" | awk 'NR > 1 {print $1}'); do
		"$KIN" logs --name "$NAME" "$machine" >"$RESULTS/$machine.log" 2>&1 || true
	done
fi
[[ ${CONFORMANCE_KEEP:-} == 1 ]] || "$KIN" delete cluster --name "$NAME"
exit $status
