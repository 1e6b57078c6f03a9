package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// secondNetwork is a wire that all nodes are on with secondDevice; shore is a machine on it.
	secondNetwork = "second"
	secondDevice  = "eth1"
	shore         = "shore"
	storageName   = "storage"
	multiNIC      = "OVN-KUBE-EGRESS-IP-MULTI-NIC"
	markChain     = "OVN-KUBE-EGRESS-IP-MARK"
	strayChain    = "OVN-KUBE-EGRESS-IP-STRAY"
)

var (
	secondSubnets = []string{"192.168.50.0/24", "fd00:50::/64"}
	shoreIPs      = addresses("192.168.50.100", "fd00:50::100")
	storageIPs    = addresses("192.168.50.201", "fd00:50::201")
)

// secondary has pods leave with addresses on a network other than the nodes' own. That nothing of it stays is
// checked after all tests of EgressIPs.
func (e *egressIPTest) secondary(t *testing.T) {
	e.addShore(t)
	e.assignable(t, "ovn-worker")
	e.choose(t, storageName, "egress-0", "egress-1")
	e.create(t, storageName, storageIPs, held)
	t.Run("Rows", e.secondaryRows)
	t.Run("Neighbours", func(t *testing.T) { e.neighbours(t, shore, secondDevice, e.programmed(t, storageName)) })
	t.Run("NodeAddresses", e.secondaryInside)
	t.Run("NewPod", e.secondaryNewPod)
	e.in(t, "local", "Kill", func(t *testing.T) { e.secondaryKill(t, "ovn-worker") }) // before a move, which leaves something for a while
	t.Run("LinkDown", e.linkDown)
	e.in(t, "local", "Connections", func(t *testing.T) { e.secondaryConnections(t, "ovn-worker2", "ovn-worker") })
	if count := number("EGRESSIP_STARTS", 0); count > 0 {
		t.Run("Starts", func(t *testing.T) { e.starts(t, count) })
	}
	e.remove(t, storageName)
	e.choose(t, storageName)
	e.assignable(t)
}

// addShore adds the machine on the other network, unless it exists.
func (s *suite) addShore(t *testing.T) {
	t.Helper()
	if s.hasShore {
		return
	}
	if err := s.Kin.AddHost(t.Context(), shore, secondNetwork, shoreIPs[0].String(), shoreIPs[1].String()); err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), shore); err != nil {
		t.Fatal(err)
	}
	s.hasShore = true
}

// ashore waits until pods are seen on the other network with their egress address.
func (e *egressIPTest) ashore(t *testing.T) {
	t.Helper()
	pods := []string{"egress-0", "egress-1"}
	err := atOnce(2*len(pods), func(i int) error {
		return e.seenAs(t.Context(), pods[i/2], shoreIPs[i%2], storageIPs[i%2:i%2+1])
	})
	if err != nil {
		t.Error(err)
	}
}

// secondaryRows checks everything that the documentation shows: policies, rules, the table, the
// chains, the address; and what they do.
func (e *egressIPTest) secondaryRows(t *testing.T) {
	const holder = "ovn-worker"
	e.programmed(t, storageName)
	e.ashore(t)
	all, err := e.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var policies []string
	for i, a := range storageIPs {
		is4 := a.Is4()
		family, save := map[bool]string{true: "-4", false: "-6"}[is4], map[bool]string{true: "iptables-save", false: "ip6tables-save"}[is4]
		management, err := pick(all[holder].ManagementAddrs(), is4)
		if err != nil {
			t.Fatal(err)
		}
		var snat, froms []string
		for _, name := range []string{"egress-0", "egress-1"} {
			pod := e.pods[name].Address(is4)
			match := map[bool]string{true: "ip4", false: "ip6"}[is4]
			policies = append(policies, fmt.Sprintf("100 %s.src == %s reroute %s", match, pod, management))
			snat = append(snat, fmt.Sprintf("-A %s -s %s -o %s -j SNAT --to-source %s", multiNIC, netip.PrefixFrom(pod, pod.BitLen()), secondDevice, a))
			froms = append(froms, pod.String())
		}
		e.lists(t, holder, "-A "+multiNIC, snat, save, "-t", "nat")
		marked := []string{
			"-A " + markChain + " -m mark --mark 0x3f0 -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff",
			"-A " + markChain + " -m mark --mark 0x0 -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff",
		}
		e.lists(t, holder, "5999:", []string{"5999: from all fwmark 0x3f0 lookup main proto 79"}, "ip", family, "rule")
		e.lists(t, holder, "-j CONNMARK", marked, save, "-t", "mangle")
		table := e.table(t, holder, family, froms)
		routes, err := e.list(t.Context(), holder, "", "ip", family, "route", "show", "table", table)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{secondSubnets[i] + " dev " + secondDevice, "default"} {
			if !slices.ContainsFunc(routes, func(r string) bool { return strings.HasPrefix(r, want) }) {
				t.Errorf("table %s has no route %s: %q", table, want, routes)
			}
		}
		e.hasAddress(t, holder, a, true)
		e.hasAddress(t, "ovn-worker2", a, false)
	}
	e.policies(t, policies...)
}

// table reads the ip rules of pods and returns the table that all of them use.
func (e *egressIPTest) table(t *testing.T, node, family string, pods []string) string {
	t.Helper()
	rules, err := e.list(t.Context(), node, "6000:", "ip", family, "rule")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(pods)
	var froms []string
	tables := map[string]bool{}
	table := ""
	for _, r := range rules {
		words := strings.Fields(r)
		if len(words) < 5 || words[1] != "from" || words[3] != "lookup" {
			t.Fatalf("rule %q", r)
		}
		froms, table = append(froms, words[2]), words[4]
		tables[table] = true
	}
	if slices.Sort(froms); !slices.Equal(froms, pods) || len(tables) != 1 {
		t.Fatalf("rules %q, want those of %v and one table", rules, pods)
	}
	return table
}

// hasAddress waits until a node has an address on the other network, or does not, and likewise has
// it in the annotation by which it recognizes the address later.
func (e *egressIPTest) hasAddress(t *testing.T, node string, a netip.Addr, wants bool) {
	t.Helper()
	what := fmt.Sprintf("%s on %s: %t", a, node, wants)
	err := lab.Until(t.Context(), egressPatience, what, func(ctx context.Context) error {
		list, err := e.list(ctx, node, " "+a.String()+"/", "ip", "-o", "addr", "show", "dev", secondDevice)
		if err != nil {
			return err
		}
		n, err := e.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		recorded := strings.Contains(n.Annotations["k8s.ovn.org/egressip-addresses"], `"`+a.String()+`"`)
		if (len(list) == 1) != wants || recorded != wants {
			return fmt.Errorf("the link has %q, the annotation is %q", list, n.Annotations["k8s.ovn.org/egressip-addresses"])
		}
		if strings.Contains(n.Annotations["k8s.ovn.org/host-addresses"], `"`+a.String()+`/`) {
			return errors.New("it passes for an address of the host's own")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// secondaryInside has the pods connect to all addresses of the nodes.
func (e *egressIPTest) secondaryInside(t *testing.T) {
	pods := e.all()
	if err := atOnce(len(pods), func(i int) error { return e.reachesNodes(t.Context(), pods[i]) }); err != nil {
		t.Error(err)
	}
}

// secondaryNewPod starts a pod that sends from its first instruction.
func (e *egressIPTest) secondaryNewPod(t *testing.T) {
	const port = newPodsPort
	var watched []*lab.Capture
	for machine, device := range map[string]string{shore: "eth0", lab.ControlPlane: secondDevice, "ovn-worker2": secondDevice} {
		c, err := e.Capture(t.Context(), machine, device, fmt.Sprintf("udp dst port %d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		watched = append(watched, c)
	}
	names := []string{"ashore-0", "ashore-1"}
	for i, name := range names {
		sender := lab.Sender{Name: name, Node: nodes[i], Labels: chosen(storageName), To: shoreIPs, Port: port}
		if err := e.StartSender(t.Context(), sender); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { e.deletePods(t, names) })
	for _, name := range names {
		if _, err := e.WaitPod(t.Context(), name, egressPatience); err != nil {
			t.Fatal(err)
		}
	}
	var forged []netip.AddrPort // see lab.Capture.Proven
	for _, a := range shoreIPs {
		forged = append(forged, netip.AddrPortFrom(a, port))
	}
	err := lab.Until(t.Context(), egressPatience, "packets of the new pods", func(ctx context.Context) error {
		arrived := 0
		for _, c := range watched {
			packets, err := c.Proven(ctx, "udp", forged...)
			if err != nil {
				return err
			}
			for _, p := range packets {
				if !slices.Contains(storageIPs, p.Source.Addr()) {
					t.Fatalf("at %s: %s", c.Machine, p.Text)
				}
			}
			if c.Machine == shore {
				arrived = len(packets)
			}
		}
		if arrived < 200 {
			return fmt.Errorf("%d packets arrived", arrived)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	e.deletePods(t, names)
}

// linkDown takes the holder's link down: the addresses move to the next node, and do not return
// when the link is up again.
func (e *egressIPTest) linkDown(t *testing.T) {
	e.assignable(t, "ovn-worker", "ovn-worker2")
	set := func(state string) {
		if _, err := e.Kin.Exec(t.Context(), "ovn-worker", "ip", "link", "set", secondDevice, state); err != nil {
			t.Fatal(err)
		}
	}
	set("down")
	t.Cleanup(func() {
		_, _ = e.Kin.Exec(context.WithoutCancel(t.Context()), "ovn-worker", "ip", "link", "set", secondDevice, "up")
	})
	for _, a := range storageIPs {
		e.movedFrom(t, storageName, a, "ovn-worker")
		e.hasAddress(t, "ovn-worker", a, false)
		e.hasAddress(t, "ovn-worker2", a, true)
	}
	e.event(t, storageName, storageIPs[0].String(), "ovn-worker")
	e.ashore(t)
	set("up")
	// The kernel dropped the link's IPv6 address; restore it as the machine's configuration does at
	// boot.
	node := slices.Index(nodes, "ovn-worker") + 2
	if _, err := e.Kin.Exec(t.Context(), "ovn-worker", "ip", "addr", "replace", fmt.Sprintf("fd00:50::%d/64", node), "dev", secondDevice, "nodad"); err != nil {
		t.Fatal(err)
	}
	e.hostAddress(t, "ovn-worker", fmt.Sprintf("192.168.50.%d/24", node), fmt.Sprintf("fd00:50::%d/64", node))
	for a, holder := range e.programmed(t, storageName) {
		if holder != "ovn-worker2" {
			t.Errorf("%s went back to %s", a, holder)
		}
	}
	e.neighbours(t, shore, secondDevice, e.programmed(t, storageName))
}

// hostAddress waits until a node's annotation has the addresses.
func (e *egressIPTest) hostAddress(t *testing.T, node string, prefixes ...string) {
	t.Helper()
	err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("%s to have %q", node, prefixes), func(ctx context.Context) error {
		n, err := e.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have := n.Annotations["k8s.ovn.org/host-addresses"]
		for _, p := range prefixes {
			if !strings.Contains(have, `"`+p+`"`) {
				return fmt.Errorf("it has %s", have)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// secondaryKill kills the master and the holder's ovnkube at the same time.
func (e *egressIPTest) secondaryKill(t *testing.T, holder string) {
	before := e.steadyState(t)
	e.kill(t, processes[0])
	e.kill(t, nodeProcess(holder))
	e.sameState(t, before)
	e.ashore(t)
}
