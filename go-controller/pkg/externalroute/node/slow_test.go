package node

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// counted counts how often the connections are listed.
type counted struct {
	*datapath
	lists int
}

func (c *counted) List(ctx context.Context) ([]host.Steered, error) {
	c.mu.Lock()
	c.lists++
	c.mu.Unlock()
	return c.datapath.List(ctx)
}

// TestSlowChassis: as long as the chassis has not applied the removal of a gateway, it stores the gateway with
// connections again, however long that is; afterwards they are forgotten. Reports without a change before them have no
// effect.
func TestSlowChassis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakeapi.NewClientset(namespace("red", "172.18.0.51,172.18.0.52"), pod("a", "red", "10.244.0.5"))
		d := &counted{datapath: &datapath{entries: map[host.Steered]bool{}}}
		var applied func()
		start(t, client, Deps{Connections: d,
			OnApplied: func(f func()) { applied = f },
			Resolve: func(context.Context, []netip.Addr) (map[netip.Addr]string, error) {
				return map[netip.Addr]string{netip.MustParseAddr("172.18.0.52"): "m52"}, nil
			}})
		connect := func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, mac := range []string{"m51", "m52"} {
				d.entries[host.Steered{Zone: 6, Dst: netip.MustParseAddr("10.244.0.5"), Neighbor: mac, Tuple: mac}] = true
			}
		}
		left := func(what string, want ...string) {
			t.Helper()
			fakeapi.Settle()
			if got := d.left(); !slices.Equal(got, want) {
				t.Errorf("%s: left %q, want %q", what, got, want)
			}
		}
		if _, err := client.CoreV1().Namespaces().Update(t.Context(), namespace("red", "172.18.0.52"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		left("the chassis hangs")
		for _, report := range []string{"the chassis reports an earlier change", "the chassis reports the change"} {
			<-time.After(time.Hour)
			connect()
			left("it still hangs", "10.244.0.5 m51", "10.244.0.5 m52")
			applied()
			<-time.After(reportPace + latePace)
			left(report, "10.244.0.5 m52")
		}
		for range 15 { // the first of these may be about earlier changes, after so long a pause
			<-time.After(time.Minute)
			applied()
			fakeapi.Settle()
		}
		before := d.lists
		for range 100 {
			applied()
			fakeapi.Settle()
		}
		if n := d.lists - before; n > 1 {
			t.Errorf("connections were listed %d times although nothing changed", n)
		}
	})
}

// TestNamespaceOfOtherNodes: a change of a namespace in which the node has no pods does not cause a check, which reads all
// connections of the node. Namespaces change all the time.
func TestNamespaceOfOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakeapi.NewClientset(pod("a", "red", "10.244.0.5"))
		version := 1000
		versioned := func(name, gateways string) *corev1.Namespace {
			ns := namespace(name, gateways)
			version++
			ns.ResourceVersion = strconv.Itoa(version)
			return ns
		}
		for _, ns := range []*corev1.Namespace{versioned("red", "172.18.0.51"), versioned("blue", "172.18.0.51"), versioned("green", "")} {
			if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		d := &counted{datapath: &datapath{entries: map[host.Steered]bool{}}}
		start(t, client, Deps{Connections: d})
		<-time.After(time.Minute)
		for _, change := range []struct {
			name, gateways string
			checks         bool
		}{{"blue", "172.18.0.51", false}, {"green", "", false}, {"red", "172.18.0.51", true}, {"green", "172.18.0.51", true}} {
			before := d.lists
			if _, err := client.CoreV1().Namespaces().Update(t.Context(), versioned(change.name, change.gateways), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			fakeapi.Settle()
			<-time.After(time.Minute)
			if n := d.lists - before; n > 0 != change.checks {
				t.Errorf("a change of namespace %s: %d checks", change.name, n)
			}
		}
	})
}

// cached is a datapath that uses flows from before until it is waited for.
type cached struct {
	*datapath
	settled bool
}

func (c *cached) Flush(ctx context.Context, connections []host.Steered) error {
	if !c.settled {
		return nil // the next packet stores the gateway again
	}
	return c.datapath.Flush(ctx, connections)
}

// TestSlowDatapath: a connection is forgotten when no packet can store the former gateway with it again.
func TestSlowDatapath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakeapi.NewClientset(namespace("red", ""), pod("a", "red", "10.244.0.5"))
		d := &cached{datapath: &datapath{entries: map[host.Steered]bool{
			{Zone: 6, Dst: netip.MustParseAddr("10.244.0.5"), Neighbor: "m51", Tuple: "1"}: true,
		}}}
		start(t, client, Deps{Connections: d,
			Settle: func(context.Context) error {
				d.settled = true
				return nil
			}})
		if got := d.left(); len(got) > 0 {
			t.Errorf("left %q", got)
		}
	})
}
