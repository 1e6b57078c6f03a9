package app

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/snatguard"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// nodeAPI serves one node, and records its patches.
type nodeAPI struct {
	node    *corev1.Node // nil: gone
	patches []string
}

func (a *nodeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if a.node == nil {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		return
	}
	if r.Method == http.MethodPatch {
		body, _ := io.ReadAll(r.Body)
		a.patches = append(a.patches, string(body))
	}
	_ = json.NewEncoder(w).Encode(a.node)
}

// TestCleanHost: everything that a node creates is removed, of each kind, and foreign objects stay.
// Cleanup succeeds a second time, even if the Node no longer exists; then it names the addresses that may be left.
func TestCleanHost(t *testing.T) {
	api := &nodeAPI{node: &corev1.Node{
		TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: "u1",
			Labels: map[string]string{kube.LabelEgressServicePrefix + "ns-svc": "", kube.LabelEgressAssignable: ""},
			Annotations: map[string]string{
				kube.AnnotationEgressIPAddresses: `["172.19.0.33"]`, kube.AnnotationEgressHandover: "true",
				kube.AnnotationNodeSubnets: `{"default":["10.244.0.0/24"]}`, "example.org/theirs": "yes",
			},
		},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: network.ReasonReady}}},
	}}
	server := httptest.NewServer(api) // reached from outside the namespace
	defer server.Close()
	ns := netnstest.New(t, netnstest.PrivateMounts())
	vs := ns.OVS()
	cfg := config.Config{CNI: config.CNI{ConfDir: t.TempDir()}, Kubernetes: config.Kubernetes{APIServer: server.URL}}

	conf := filepath.Join(cfg.CNI.ConfDir, cni.ConfFileName)
	if err := os.WriteFile(conf, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	vs.Run("ovs-vsctl", "add-br", topology.IntegrationBridge, "--", "set", "bridge", topology.IntegrationBridge, "datapath_type=netdev",
		"--", "add-br", "theirs", "--", "set", "bridge", "theirs", "datapath_type=netdev")
	ns.Veth("eth9", "far9")
	for _, args := range []string{
		"addr add 172.19.0.33/32 dev eth9", "addr add 172.19.0.3/24 dev eth9",
		"route add 198.51.100.0/24 dev eth9 proto 79", "route add 203.0.113.0/24 dev eth9",
		"rule add from 10.244.0.5 lookup 99 priority 5000 protocol 79", "rule add from 10.244.0.6 lookup 99 priority 5000",
	} {
		ns.Run("ip", strings.Fields(args)...)
	}
	for _, args := range []string{
		"-N OVN-KUBE-EGRESS-SVC", "-A OVN-KUBE-EGRESS-SVC -j RETURN", "-A POSTROUTING -j OVN-KUBE-EGRESS-SVC", "-N THEIRS",
	} {
		ns.Run("iptables", append([]string{"-t", "nat"}, strings.Fields(args)...)...)
	}
	if err := snatguard.New([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, topology.ManagementPort).Ensure(); err != nil {
		t.Fatal(err)
	}

	files := []string{filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "shim")}
	if err := errors.Join(os.Mkdir(files[0], 0o755), os.WriteFile(filepath.Join(files[0], "node.json"), nil, 0o600), os.WriteFile(files[1], nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	switches := ovs.New(t.Context(), vs.Endpoint())
	if err := switches.SetTLS(t.Context(), ovs.TLS{PrivateKey: "/k", Certificate: "/c", CACert: "/ca"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := cleanHost(t.Context(), cfg, "n1", switches, files...); err != nil {
			t.Fatal(err)
		}
		for what, left := range map[string]bool{
			"the network configuration": exists(conf),
			"an iptables chain":         strings.Contains(ns.Run("iptables-save"), "OVN-KUBE"),
			"an ip rule":                strings.Contains(ns.Run("ip", "rule"), "10.244.0.5"),
			"a route":                   strings.Contains(ns.Run("ip", "route"), "198.51.100.0"),
			"an egress address":         strings.Contains(ns.Run("ip", "addr"), "172.19.0.33/32"),
			"a bridge":                  strings.Contains(vs.Run("ovs-vsctl", "list-br"), topology.IntegrationBridge),
			"a directory of ours":       exists(files[0]),
			"the CNI plugin":            exists(files[1]),
			"TLS files":                 strings.Contains(vs.Run("ovs-vsctl", "get-ssl"), "/k"),
			"an empty chain":            strings.Contains(ns.Run("nft", "list", "ruleset"), "chain POSTROUTING"),
			"the guard":                 strings.Contains(ns.Run("nft", "list", "tables"), "ovn-kube"),
		} {
			if left {
				t.Errorf("%s is left", what)
			}
		}
		for what, left := range map[string]bool{
			"iptables chain": strings.Contains(ns.Run("iptables-save"), "THEIRS"),
			"ip rule":        strings.Contains(ns.Run("ip", "rule"), "10.244.0.6"),
			"route":          strings.Contains(ns.Run("ip", "route"), "203.0.113.0"),
			"address":        strings.Contains(ns.Run("ip", "addr"), "172.19.0.3/24"),
			"bridge":         strings.Contains(vs.Run("ovs-vsctl", "list-br"), "theirs"),
		} {
			if !left {
				t.Errorf("somebody else's %s is gone", what)
			}
		}
		api.node = nil
	}
	// Which addresses were egress addresses is known only to the Node.
	ns.Run("ip", "addr", "add", "172.19.0.34/32", "dev", "eth9")
	ns.Run("ip", "addr", "add", "fd00:19::34/128", "dev", "eth9")
	ns.Run("ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
	ns.Run("ip", "addr", "add", "fd00:19::35/128", "dev", "eth9", "valid_lft", "1000", "preferred_lft", "1000") // a lease
	if err := os.Mkdir(files[0], 0o755); err != nil {
		t.Fatal(err)
	}
	err := cleanHost(t.Context(), cfg, "n1", switches, files...)
	if err == nil || !strings.Contains(err.Error(), "node n1 does not exist") || !strings.HasSuffix(err.Error(), ": 172.19.0.34/32 at eth9, fd00:19::34/128 at eth9") {
		t.Errorf("addresses that may be ours: %v", err)
	}
	if exists(files[0]) || !strings.Contains(ns.Run("ip", "addr"), "172.19.0.34/32") {
		t.Error("a directory of ours is left, or an address that may be somebody else's is gone")
	}
	want := []string{
		`{"metadata":{"annotations":{"k8s.ovn.org/egress-handover":null,"k8s.ovn.org/egressip-addresses":null,"k8s.ovn.org/node-subnets":null},` +
			`"labels":{"egress-service.k8s.ovn.org/ns-svc":null},"uid":"u1"}}`,
		`{"metadata":{"uid":"u1"},"status":{"conditions":[{"$patch":"delete","type":"NetworkUnavailable"}]}}`,
	}
	if !slices.Equal(api.patches, want) {
		t.Errorf("the node is patched with\n%s\nnot\n%s", strings.Join(api.patches, "\n"), strings.Join(want, "\n"))
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestCleanHostUnreadableRecord: all else is removed although the record of egress addresses cannot be read. The addresses that may
// be left are named, also if the command is repeated, until there are none.
func TestCleanHostUnreadableRecord(t *testing.T) {
	const record = "172.18.0.33, 172.18.0.34"
	api := &nodeAPI{node: &corev1.Node{
		TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: "u1", Labels: map[string]string{kube.LabelEgressServicePrefix + "ns-svc": ""},
			Annotations: map[string]string{kube.AnnotationEgressIPAddresses: record, kube.AnnotationEgressHandover: "true"},
		},
	}}
	server := httptest.NewServer(api) // reached from outside the namespace
	defer server.Close()
	ns := netnstest.New(t, netnstest.PrivateMounts())
	vs := ns.OVS()
	cfg := config.Config{CNI: config.CNI{ConfDir: t.TempDir()}, Kubernetes: config.Kubernetes{APIServer: server.URL}}
	ns.Veth("eth9", "far9")
	ns.Run("ip", "addr", "add", "172.18.0.33/32", "dev", "eth9")
	file := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	switches := ovs.New(t.Context(), vs.Endpoint())
	for range 2 {
		err := cleanHost(t.Context(), cfg, "n1", switches, file)
		if err == nil || !strings.Contains(err.Error(), kube.AnnotationEgressIPAddresses) || !strings.Contains(err.Error(), record) ||
			!strings.HasSuffix(err.Error(), ": 172.18.0.33/32 at eth9") {
			t.Errorf("addresses that may be ours: %v", err)
		}
	}
	if exists(file) {
		t.Error("a directory of ours is left")
	}
	if !strings.Contains(ns.Run("ip", "addr"), "172.18.0.33/32") {
		t.Error("an address that may be somebody else's is gone")
	}
	ns.Run("ip", "addr", "del", "172.18.0.33/32", "dev", "eth9")
	if err := cleanHost(t.Context(), cfg, "n1", switches, file); err != nil {
		t.Errorf("without such addresses: %v", err)
	}
	others := `"k8s.ovn.org/egress-handover":null`
	labels := `"labels":{"egress-service.k8s.ovn.org/ns-svc":null}`
	for i, p := range api.patches {
		kept := !strings.Contains(p, kube.AnnotationEgressIPAddresses)
		if !strings.Contains(p, others) || !strings.Contains(p, labels) || kept != (i < 2) {
			t.Errorf("patch %d of the node is %s", i, p)
		}
	}
	if len(api.patches) != 3 {
		t.Errorf("%d patches of the node", len(api.patches))
	}
}
