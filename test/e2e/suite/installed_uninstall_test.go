package suite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// egressObjects are an object of each kind, which give nodes addresses, rules, routes and labels.
const egressObjects = `
apiVersion: v1
kind: Service
metadata: {name: leaving, namespace: default}
spec:
  type: LoadBalancer
  selector: {leaving: ""}
  ipFamilyPolicy: PreferDualStack
  ports: [{port: 8080}]
---
apiVersion: k8s.ovn.org/v1
kind: EgressService
metadata: {name: leaving, namespace: default}
spec: {sourceIPBy: LoadBalancerIP}
---
apiVersion: k8s.ovn.org/v1
kind: EgressIP
metadata: {name: leaving}
spec:
  egressIPs: [172.18.0.244, "fc00:f853:ccd:e793::244"]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
---
apiVersion: k8s.ovn.org/v1
kind: AdminPolicyBasedExternalRoute
metadata: {name: leaving}
spec:
  from: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}}
  nextHops: {static: [{ip: 172.18.0.100}]}
`

// ofKin reports whether a line is about what kin creates: br-int, for its userspace datapath, and
// OVN's directories, before OVN is there. Both are deleted with OVN.
func ofKin(line string) bool {
	return strings.Contains(line, "br-int") || strings.Contains(line, "ovs-netdev") || strings.Contains(line, "ovs_netdev") || line == "d 755 /run/ovn" || line == "d 755 /var/lib/ovn"
}

// egressInUse makes the nodes do something for each feature.
func (s *suite) egressInUse(t *testing.T) {
	t.Helper()
	path, err := s.WriteFile("leaving.yaml", egressObjects)
	if err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "label", "--overwrite", "node", "ovn-worker", "k8s.ovn.org/egress-assignable=")
	s.kubectl(t, "--namespace=default", "apply", "--filename", path)
	s.kubectl(t, "--namespace=default", "label", "--overwrite", "pod/b", "leaving=")
	s.kubectl(t, "--namespace=default", "patch", "service/leaving", "--subresource=status", `--patch={"status":{"loadBalancer":{"ingress":[{"ip":"5.5.5.44"},{"ip":"5555::44"}]}}}`)
	for object, condition := range map[string]string{
		"egressip/leaving":                      "{.status.items[1].node}=ovn-worker",
		"egressservice/leaving":                 "{.status.host}",
		"adminpolicybasedexternalroute/leaving": "{.status.status}=Success",
		"namespace/default":                     `{.metadata.annotations.k8s\.ovn\.org/external-gateways-in-use}=172.18.0.100`,
	} {
		s.kubectl(t, "--namespace=default", "wait", "--for=jsonpath="+condition, "--timeout=1m", object)
	}
}

// uninstall follows docs/operations.md while egress objects are in use, and checks that everything
// is as it was before ovnkube was installed.
func (s *suite) uninstall(t *testing.T, before lab.State) {
	kubectl := func(args ...string) { t.Helper(); s.kubectl(t, args...) }
	s.egressInUse(t)
	kubectl("delete", "adminpolicybasedexternalroute", "leaving")
	err := lab.Until(t.Context(), time.Minute, "the gateways not to be in use", func(ctx context.Context) error {
		ns, err := s.Kube.CoreV1().Namespaces().Get(ctx, lab.Namespace, metav1.GetOptions{})
		if err == nil && ns.Annotations[kube.AnnotationGatewaysInUse] != "" {
			err = errors.New(ns.Annotations[kube.AnnotationGatewaysInUse])
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	kubectl("delete", "--cascade=foreground", "deployment/ovnkube-master", "daemonset/ovnkube-node", "daemonset/ovn-controller")
	for _, node := range nodes {
		out, err := s.Kin.Exec(t.Context(), node, "ovnkube", "--cleanup-node="+node, "--k8s-kubeconfig=/etc/kubernetes/admin.conf")
		if err != nil {
			t.Error(err)
		}
		t.Log(out)
	}
	kubectl("delete", "--ignore-not-found", "--kustomize", s.Manifests())
	kubectl("delete", "--filename", s.CRDs())
	kubectl("delete", "csr", "--field-selector=spec.signerName=k8s.ovn.org/node")
	for _, node := range nodes {
		if _, err := s.Kin.Exec(t.Context(), node, "rm", "-rf", "/var/lib/ovn", "/run/ovn"); err != nil {
			t.Error(err)
		}
	}
	kubectl("--namespace=default", "delete", "service", "leaving")
	kubectl("label", "node", "ovn-worker", "k8s.ovn.org/egress-assignable-")
	// Kubernetes takes a while to notice that there is no network.
	err = lab.Until(t.Context(), time.Minute, "nodes to be as they were", func(ctx context.Context) error {
		after, err := s.Snapshot(ctx, nodes...)
		if err != nil {
			return err
		}
		if diff := before.Without(ofKin).Diff(after); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
