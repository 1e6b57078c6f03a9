package suite

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// outbound returns the cells for connections from a pod.
func (s *suite) outbound(t *testing.T, c *combination, gateways, is4 bool) []cell {
	t.Helper()
	own, err := s.nodeAddress(t.Context(), c.Node, is4)
	if err != nil {
		t.Fatal(err)
	}
	self := c.Address(is4)
	asks := func(what, url, want string) cell {
		return cell{from: c.Name, pod: true, what: fmt.Sprintf("%s: to %s", c, what), url: url, want: want}
	}
	who := func(what string, to netip.Addr, name string, source netip.Addr) cell {
		return asks(what, lab.URL(to, "/who"), name+" "+source.String())
	}
	cells := []cell{s.leavesBy(t, c, gateways, is4, who)}
	for _, server := range []string{"a", "b"} {
		cells = append(cells, who("a pod", s.servers[server].Address(is4), s.servers[server].Name, self))
	}
	for _, node := range nodes {
		to, err := s.nodeAddress(t.Context(), node, is4)
		if err != nil {
			t.Fatal(err)
		}
		source := own
		if node == c.Node {
			source = self
		}
		cells = append(cells, who("node "+node, to, node, source))
	}
	kubernetes, err := s.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if api := netip.MustParseAddr(kubernetes.Spec.ClusterIP); api.Is4() == is4 {
		// The API server answers plain HTTP with an error, which counts as an answer.
		cells = append(cells, asks("the API server", fmt.Sprintf("http://%s/", netip.AddrPortFrom(api, uint16(kubernetes.Spec.Ports[0].Port))), "400 Bad Request*"))
	}
	return cells
}

// leavesBy returns the cell for the outside: the machine whose answer tells which way the pod
// takes, and the source address.
func (s *suite) leavesBy(t *testing.T, c *combination, gateways, is4 bool, who func(what string, to netip.Addr, name string, source netip.Addr) cell) cell {
	t.Helper()
	own, err := s.nodeAddress(t.Context(), c.Node, is4)
	if err != nil {
		t.Fatal(err)
	}
	of := func(addresses []netip.Addr) netip.Addr { return lab.OfFamily(addresses, is4) }
	switch {
	case gateways && c.ip == "primary" && c.Node == combinedHost: // its node's router translates it
		return who("what is beyond the gateways", of(lab.Beyond), "gateway[12]", of(combinedIPs))
	case gateways:
		return who("what is beyond the gateways", of(lab.Beyond), "gateway[12]", own)
	case c.service == "ip":
		return who("outside", of(lab.OutsideAddresses), lab.Outside, of(c.ingress))
	case c.service == "network":
		return who("the other network", of(blueBehind), blueName, of(c.ingress))
	// No policy keeps the traffic of these pods on their node: an EgressIP reroutes it.
	case c.service == "all" && (c.ip == "" || c.ip == "secondary" && c.Node == combinedHost):
		return who("the other network", of(blueBehind), blueName, own)
	case c.ip == "primary":
		return who("outside", of(lab.OutsideAddresses), lab.Outside, of(combinedIPs))
	case c.ip == "secondary":
		return who("the second network", of(shoreIPs), shore, of(combinedShore))
	}
	return who("outside", of(lab.OutsideAddresses), lab.Outside, own)
}

// calls returns the cells for connections to a pod: if its EgressService has another network,
// clients of its load-balancer address are there, all others are on the outside host.
func (s *suite) calls(t *testing.T, c *combination, gateways, is4 bool) []cell {
	t.Helper()
	client := lab.OfFamily(lab.OutsideAddresses, is4).String()
	call := func(machine, what string, to netip.AddrPort, source string) cell {
		return cell{from: machine, what: fmt.Sprintf("%s: %s of the pod's Service", c, what), url: "http://" + to.String() + "/who", want: c.Name + " " + source}
	}
	at := func(node string, port int32) netip.AddrPort {
		a, err := s.nodeAddress(t.Context(), node, is4)
		if err != nil {
			t.Fatal(err)
		}
		return netip.AddrPortFrom(a, uint16(port))
	}
	balanced := lab.Outside
	if c.service == "network" || c.service == "all" {
		balanced = blueName
	}
	every := lab.Outside
	if c.service == "all" { // all nodes answer by the network's table
		every = blueName
	}
	cells := []cell{
		call(balanced, "load balancer address", netip.AddrPortFrom(lab.OfFamily(c.ingress, is4), lab.ServePort), "*"),
		call(every, "node port", at(lab.ControlPlane, c.port), "*"),
		call(lab.Outside, "load balancer address (Local)", netip.AddrPortFrom(lab.OfFamily(c.local, is4), lab.ServePort), client),
		call(lab.Outside, "node port (Local)", at(c.Node, c.localPort), client),
	}
	if s.mode == "shared" && c.service == "network" && !gateways { // the gateway router routes the replies
		cells[0].want = noAnswer
	}
	return cells
}

// noAnswer means that a client should get no answer. docs/precedence.md says where.
const noAnswer = "none"

// right reports whether an answer is the expected one.
func (c cell) right(answer string) bool {
	if c.want == noAnswer {
		return lab.TimedOut(errors.New(answer))
	}
	ok, err := filepath.Match(c.want, answer)
	return ok && err == nil
}
