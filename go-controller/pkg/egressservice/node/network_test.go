package node

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestNetwork: ip rules on the host, or for the pods of each node, and for their traffic
// to destinations outside the network; none if there is no table, which the status reports, and they
// are added when the table appears.
func TestNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		svc := service("demo-svc", "5.5.5.5")
		svc.Spec.ClusterIPs = []string{"10.96.135.5", "fd00:10:96::5"}
		if _, err := w.kube.CoreV1().Services("default").Update(t.Context(), svc, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		const me = "ovn-worker2"
		sl := slice("demo-svc", "10.244.0.3", "10.244.1.6")
		if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), sl, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.start()
		eg := egress("demo-svc", me)
		eg.Spec.Network = "blue"
		w.update(eg)
		w.eventually("the problem", func() bool { p := w.status().Programmed; return p != nil && strings.Contains(p.Problem, "blue") })
		dump := func() string { return hostfake.DumpIPRules(w.ipRules.Objects()) }
		if got := dump(); got != "" || rules(w) != 2 {
			t.Errorf("without a table:\n%s%s", got, w.dump())
		}
		w.kernel.mu.Lock()
		w.kernel.tables["blue"] = host.RoutingTable{Number: 7}
		w.kernel.mu.Unlock()
		w.eventually("the rules", func() bool { return w.status().Programmed.Problem == "" && strings.Count(dump(), "5000:") == 4 })
		golden.Check(t, "network-host", dump())

		all := w.status()
		eg = egress("demo-svc", v1.HostAll)
		eg.Spec.Network, eg.Spec.SourceIPBy = "blue", v1.SourceIPNetwork
		eg.Status.Conditions = all.Conditions
		w.update(eg)
		w.eventually("only its own pods, and no translations", func() bool { return strings.Count(dump(), "5000:") == 3 && rules(w) == 0 })
		golden.Check(t, "network-all", dump())
		w.kernel.mu.Lock()
		delete(w.kernel.tables, "blue")
		w.kernel.mu.Unlock()
		w.eventually("the rules to go with the table, and the status to say so", func() bool {
			p := w.status().Programmed
			return dump() == "" && p != nil && p.Host == me && p.Problem != ""
		})
		w.kernel.mu.Lock()
		w.kernel.tables["blue"] = host.RoutingTable{Number: 8, VRF: true}
		w.kernel.mu.Unlock()
		w.eventually("the rules in another table", func() bool { return strings.Count(dump(), "5000:") == 3 && w.status().Programmed == nil })
		golden.Check(t, "network-vrf", dump())
	})
}

// TestNetworkOfOneFamily: packets of a family in which the table has no route take the usual routes, so
// the status names the family as long as there are endpoints of it.
func TestNetworkOfOneFamily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		routes := func(without topology.Family) {
			w.kernel.mu.Lock()
			defer w.kernel.mu.Unlock()
			w.kernel.tables["blue"] = host.RoutingTable{Number: 7, Without: without}
		}
		endpoints := func(addrs ...string) {
			t.Helper()
			if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice("demo-svc", addrs...), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		says := func(what, problem string) {
			t.Helper()
			w.eventually(what, func() bool { p := w.status().Programmed; return p != nil && p.Problem == problem })
		}
		routes(topology.IPv6)
		endpoints("10.244.0.5", "fd00:10:244:1::5")
		w.start()
		eg := egress("demo-svc", "ovn-worker2")
		eg.Spec.Network = "blue"
		w.update(eg)
		says("the problem", "the routing table of network blue has no IPv6 route")
		led := func() string { return hostfake.DumpIPRules(w.ipRules.Objects()) }
		const rule4, rule6 = "from 10.244.0.5 lookup 7", "from fd00:10:244:1::5 lookup 7"
		if got := led(); !strings.Contains(got, rule4) || strings.Contains(got, rule6) {
			t.Errorf("the pods of one family, and no others, are to be led into the network:\n%s", got)
		}
		routes(0)
		says("no problem with routes of both families", "")
		w.eventually("rules of both families", func() bool { return strings.Contains(led(), rule4) && strings.Contains(led(), rule6) })
		routes(topology.IPv4)
		says("the problem of the other family", "the routing table of network blue has no IPv4 route")
		w.eventually("rules of that family to go", func() bool { return !strings.Contains(led(), rule4) && strings.Contains(led(), rule6) })
		endpoints("fd00:10:244:1::5")
		says("no problem without such endpoints", "")
	})
}

// TestNodeRepliesLinger: as long as ip rules of a network that is no longer wanted
// exist, so do the exemptions for replies by host ports; then both are removed.
func TestNodeRepliesLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.linger = Linger
		w.kernel.mu.Lock()
		w.kernel.tables["blue"] = host.RoutingTable{Number: 7}
		w.kernel.mu.Unlock()
		w.start()
		eg := egress("demo-svc", "ovn-worker2")
		eg.Spec.Network = "blue"
		w.update(eg)
		marks := func() int { return strings.Count(w.dump(), "--set-xmark 0x3f3/") }
		led := func() int {
			return strings.Count(hostfake.DumpIPRules(w.ipRules.Objects()), "5000:\tfrom 10.244.") + strings.Count(hostfake.DumpIPRules(w.ipRules.Objects()), "5000:\tfrom fd00:10:244:")
		}
		w.eventually("pods to be led into the network, but for replies", func() bool { return led() > 0 && marks() == led() })
		all := led()
		eg.Spec.Network = ""
		w.update(eg)
		w.eventually("what is not wanted any more to linger, and go", func() bool {
			if led() > 0 && marks() != all {
				t.Errorf("%d pods are led into the network, replies of %d are not", led(), marks())
			}
			return led() == 0 && marks() == 0
		})
	})
}

// TestAnotherNetwork: when an EgressService gets another network, or the network another table, its traffic takes that
// table at once. Of two ip rules with the same priority the older one takes precedence, so the former ones do
// not linger.
func TestAnotherNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.linger = Linger
		w.kernel.mu.Lock()
		w.kernel.tables["blue"] = host.RoutingTable{Number: 7}
		w.kernel.tables["red"] = host.RoutingTable{Number: 8}
		w.kernel.mu.Unlock()
		w.start()
		eg := egress("demo-svc", "ovn-worker2")
		eg.Spec.Network = "blue"
		w.update(eg)
		inTable := func(table string) int {
			return strings.Count(hostfake.DumpIPRules(w.ipRules.Objects()), " lookup "+table+"\n")
		}
		w.eventually("the rules", func() bool { return inTable("7") > 0 })
		n := inTable("7")
		for _, c := range []struct {
			what, now, before string
			change            func()
		}{
			{"another network", "8", "7", func() {
				eg.Spec.Network = "red"
				w.update(eg)
			}},
			{"another table", "9", "8", func() {
				w.kernel.mu.Lock()
				w.kernel.tables["red"] = host.RoutingTable{Number: 9}
				w.kernel.mu.Unlock()
			}},
		} {
			c.change()
			w.eventually(c.what, func() bool { return inTable(c.now) == n })
			synctest.Wait()
			if got := inTable(c.before); got > 0 {
				t.Errorf("%s: %d rules refer to the former table", c.what, got)
			}
		}
		// Without a network this node translates the pods, which must not leave by the former one.
		changed := time.Now()
		eg.Spec.Network = ""
		w.update(eg)
		w.eventually("the rules to go", func() bool { return inTable("9") == 0 })
		if lingered := time.Since(changed); lingered >= Linger/2 {
			t.Errorf("the rules for the former network stayed for %s", lingered)
		}
	})
}
