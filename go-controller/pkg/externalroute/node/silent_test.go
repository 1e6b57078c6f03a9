package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestSilentGateways: a removed gateway is recognized by its last MAC address, even
// if nothing answers any more.
func TestSilentGateways(t *testing.T) {
	client := fakeapi.NewClientset(namespace("red", "172.18.0.51,172.18.0.52"), pod("a", "red", "10.244.0.5"))
	gone := host.Steered{Zone: 6, Dst: netip.MustParseAddr("10.244.0.5"), Neighbor: "m51", Tuple: "1"}
	stays := host.Steered{Zone: 6, Dst: netip.MustParseAddr("10.244.0.5"), Neighbor: "m52", Tuple: "2"}
	d := &datapath{entries: map[host.Steered]bool{gone: true, stays: true}}
	answers := map[netip.Addr]string{netip.MustParseAddr("172.18.0.51"): "m51", netip.MustParseAddr("172.18.0.52"): "m52"}
	core := informers.NewSharedInformerFactory(client, 0)
	c, err := New(Deps{Namespaces: core.Core().V1().Namespaces(), Pods: core.Core().V1().Pods(), Connections: d, OnApplied: never, Settle: settled, Own: noAddrs,
		Resolve: func(context.Context, []netip.Addr) (map[netip.Addr]string, error) { return answers, nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	fakeapi.Start(ctx, t, client, core)
	defer core.Shutdown()
	defer cancel()
	look := func(want ...string) {
		t.Helper()
		if err := c.reconcile(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if got := d.left(); !slices.Equal(got, want) {
			t.Errorf("left %q, want %q", got, want)
		}
	}
	look("10.244.0.5 m51", "10.244.0.5 m52")
	answers = nil
	look("10.244.0.5 m51", "10.244.0.5 m52")
	if _, err := client.CoreV1().Namespaces().Update(t.Context(), namespace("red", "172.18.0.52"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "one gateway to be in use", func() error {
		if used, _, _ := c.inUse(); len(used) != 1 {
			return fmt.Errorf("in use are %v", used)
		}
		return nil
	})
	look("10.244.0.5 m52")
}

// TestOwnAddress: a gateway in use that is the node itself never answers, and its pods do not use it. It
// does not keep the connections of gateways that were removed while no controller was running.
func TestOwnAddress(t *testing.T) {
	client := fakeapi.NewClientset(namespace("red", "172.18.0.3,172.18.0.51"), pod("a", "red", "10.244.0.5"))
	d := &datapath{entries: map[host.Steered]bool{}}
	for _, mac := range []string{"m51", "m52"} {
		d.entries[host.Steered{Zone: 6, Dst: netip.MustParseAddr("10.244.0.5"), Neighbor: mac, Tuple: mac}] = true
	}
	core := informers.NewSharedInformerFactory(client, 0)
	c, err := New(Deps{Namespaces: core.Core().V1().Namespaces(), Pods: core.Core().V1().Pods(), Connections: d, OnApplied: never, Settle: settled,
		Own: func() (map[netip.Addr]bool, error) {
			return map[netip.Addr]bool{netip.MustParseAddr("172.18.0.3"): true}, nil
		},
		Resolve: func(_ context.Context, asked []netip.Addr) (map[netip.Addr]string, error) {
			if len(asked) != 1 {
				t.Errorf("asked for %v", asked)
			}
			return map[netip.Addr]string{netip.MustParseAddr("172.18.0.51"): "m51"}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	fakeapi.Start(ctx, t, client, core)
	defer core.Shutdown()
	defer cancel()
	if err := c.reconcile(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if got := d.left(); !slices.Equal(got, []string{"10.244.0.5 m51"}) {
		t.Errorf("left %q", got)
	}
}

// TestMissedChange: gateways that were added and removed while the watch was lost only show in
// the version of their namespace.
func TestMissedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ns := namespace("red", "172.18.0.51")
		ns.ResourceVersion = "999"
		client := fakeapi.NewClientset(ns.DeepCopy(), pod("a", "red", "10.244.0.5"))
		d := &datapath{entries: map[host.Steered]bool{}}
		start(t, client, Deps{Connections: d,
			Resolve: func(context.Context, []netip.Addr) (map[netip.Addr]string, error) {
				return map[netip.Addr]string{netip.MustParseAddr("172.18.0.51"): "m51"}, nil
			}})
		d.mu.Lock()
		for _, mac := range []string{"m51", "m52"} {
			d.entries[host.Steered{Zone: 6, Dst: netip.MustParseAddr("10.244.0.5"), Neighbor: mac, Tuple: mac}] = true
		}
		d.mu.Unlock()
		fakeapi.Settle()
		if got := d.left(); len(got) != 2 {
			t.Errorf("left %q although nothing happened", got)
		}
		ns.ResourceVersion = "1000"
		if _, err := client.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		fakeapi.Settle()
		if got := d.left(); !slices.Equal(got, []string{"10.244.0.5 m51"}) {
			t.Errorf("left %q", got)
		}
	})
}

// TestAddedMeanwhile: the connections of a gateway that was added while the others were asked, and the datapath waited for, stay.
func TestAddedMeanwhile(t *testing.T) {
	client := fakeapi.NewClientset(namespace("red", "172.18.0.51"), pod("a", "red", "10.244.0.5"))
	entry := host.Steered{Zone: 6, Dst: netip.MustParseAddr("10.244.0.5"), Neighbor: "m52", Tuple: "1"}
	d := &datapath{entries: map[host.Steered]bool{entry: true}}
	core := informers.NewSharedInformerFactory(client, 0)
	var c *Controller
	add := func(ctx context.Context) error {
		if _, err := client.CoreV1().Namespaces().Update(ctx, namespace("red", "172.18.0.51,172.18.0.52"), metav1.UpdateOptions{}); err != nil {
			return err
		}
		eventually.True(t, "the gateway to be in use", func() bool { used, _, err := c.inUse(); return err == nil && len(used) == 2 })
		return nil
	}
	c, err := New(Deps{Namespaces: core.Core().V1().Namespaces(), Pods: core.Core().V1().Pods(), Connections: d, OnApplied: never, Settle: add, Own: noAddrs,
		Resolve: func(context.Context, []netip.Addr) (map[netip.Addr]string, error) {
			return map[netip.Addr]string{netip.MustParseAddr("172.18.0.51"): "m51"}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	fakeapi.Start(ctx, t, client, core)
	defer core.Shutdown()
	defer cancel()
	if err := c.reconcile(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if got := d.left(); len(got) != 1 {
		t.Errorf("left %q", got)
	}
}
