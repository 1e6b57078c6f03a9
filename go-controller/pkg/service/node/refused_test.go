package node_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// told waits for an Event that contains all words.
func (w *world) told(words ...string) {
	w.t.Helper()
	said := eventually.Receive(w.t, fmt.Sprintf("an Event that says %q", words), w.events.Events)
	for _, word := range words {
		if !strings.Contains(said, word) {
			w.t.Errorf("%q does not say %q", said, word)
		}
	}
}

// TestHealthPortInUse: if another process has a health port, that is reported once, does
// not affect anything else, even at startup, and ends with that process.
func TestHealthPortInUse(t *testing.T) {
	other, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	port := other.Addr().(*net.TCPAddr).Port
	w := newWorld(t, topology.GatewayShared)
	s := object("a", "10.96.0.1", corev1.ProtocolTCP, 30001)
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, int32(port)
	w.create(s)
	w.serve("a", "10.244.1.3@n1")
	for range 2 {
		w.start() // until it has settled
		w.told("Warning HealthPortInUse spec.healthCheckNodePort", fmt.Sprint(port), "node n1", "address already in use")
	}
	for _, rule := range []string{"--dport 30001", "5.5.5.1"} {
		if !strings.Contains(w.chains.Dump(topology.IPv4), rule) {
			t.Errorf("no rule with %s:\n%s", rule, w.chains.Dump(topology.IPv4))
		}
	}
	w.create(object("b", "10.96.0.2", corev1.ProtocolTCP, 30002))
	w.until("another Service", func() bool { return strings.Contains(w.chains.Dump(topology.IPv4), "--dport 30002") })
	answers := func() bool {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	w.until("the port to be served", answers)
	select {
	case said := <-w.events.Events:
		t.Errorf("said again: %s", said)
	default:
	}
}

// TestRecreatedWithHealthPortInUse: a Service that is created again while the port is still in use is told, too.
func TestRecreatedWithHealthPortInUse(t *testing.T) {
	other, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	w := newWorld(t, topology.GatewayShared)
	s := object("a", "10.96.0.1", corev1.ProtocolTCP, 30001)
	s.UID = "1"
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, int32(other.Addr().(*net.TCPAddr).Port)
	w.create(s)
	w.start()
	w.told("HealthPortInUse")
	s.UID = "2" // as an informer that was disconnected in between sees it
	if _, err := w.kube.CoreV1().Services("ns").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.told("HealthPortInUse")
}

// TestSharedHealthPort: the older Service gets the port, and the younger gets it when the
// older is gone.
func TestSharedHealthPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	w := newWorld(t, topology.GatewayShared)
	for name, age := range map[string]time.Duration{"a": 0, "b": time.Hour} {
		s := object(name, "10.96.0."+fmt.Sprint(len(name)+int(age/time.Hour)), corev1.ProtocolTCP, 30001+int32(age/time.Hour))
		s.CreationTimestamp = metav1.NewTime(time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC).Add(-age))
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, int32(port)
		w.create(s)
		w.serve(name, "10.244.1.3@n1")
	}
	w.start()
	of := func(name string) func() bool {
		return func() bool {
			resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body := make([]byte, 1000)
			n, _ := resp.Body.Read(body)
			return strings.Contains(string(body[:n]), fmt.Sprintf("\"name\": %q", name))
		}
	}
	w.until("the health of b", of("b"))
	if err := w.kube.CoreV1().Services("ns").Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the health of a", of("a"))
}

// TestAddressesOfOthers: the rules and flows of a node exclude what is refused, and follow
// changes of other nodes.
func TestAddressesOfOthers(t *testing.T) {
	w := newWorld(t, topology.GatewayShared)
	s := object("a", "10.96.0.1", corev1.ProtocolTCP, 0)
	s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, []string{"5.5.5.9", "172.18.0.2", "172.18.0.7", "10.96.0.10"}
	w.create(s)
	w.serve("a", "10.244.1.3@n1")
	has := func(ip string) bool {
		rule, flow := strings.Contains(w.chains.Dump(topology.IPv4), "-d "+ip+"/32 "), strings.Contains(w.flows.Dump(), "nw_dst="+ip+",")
		return rule && flow
	}
	hasNot := func(ip string) bool {
		return !strings.Contains(w.chains.Dump(topology.IPv4), ip) && !strings.Contains(w.flows.Dump(), ip)
	}
	w.start()
	if !has("5.5.5.9") || !has("172.18.0.7") || !hasNot("172.18.0.2") || !hasNot("10.96.0.10") {
		t.Errorf("chains are\n%s\nflows are\n%s", w.chains.Dump(topology.IPv4), w.flows.Dump())
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n7"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.18.0.7"}}}}
	if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the address to be the new node's", func() bool { return hasNot("172.18.0.7") && has("5.5.5.9") })
	if err := w.kube.CoreV1().Nodes().Delete(t.Context(), "n7", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the address to be the Service's again", func() bool { return has("172.18.0.7") })
}
