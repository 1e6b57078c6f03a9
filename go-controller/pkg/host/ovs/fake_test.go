package ovs_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
)

// TestFakeIsLikeReal does the same with the real database and with the fake and compares, after
// each step, everything that can be read.
func TestFakeIsLikeReal(t *testing.T) {
	_, _, db := setup(t)
	ctx := t.Context()
	fake := hostfake.NewOVS(nil)
	steps := map[string]func(ovs.Client) error{
		"1 bridge": func(c ovs.Client) error {
			return c.EnsureBridge(ctx, ovs.Bridge{Name: "br0", DatapathType: "netdev", MAC: "02:00:00:00:00:01",
				OtherConfig: map[string]string{"a": "1"}, ExternalIDs: map[string]string{"b": "2", "c": ""}})
		},
		"2 change it": func(c ovs.Client) error {
			return c.EnsureBridge(ctx, ovs.Bridge{Name: "br0", FailMode: "secure",
				OtherConfig: map[string]string{"a": "", "d": "4"}, ExternalIDs: map[string]string{"b": "3"}})
		},
		"3 port": func(c ovs.Client) error {
			return c.EnsurePort(ctx, ovs.Port{Bridge: "br0", Name: "p0", Type: "internal", MTU: 1400, MAC: "02:00:00:00:00:02",
				ExternalIDs: map[string]string{"x": "1", "y": ""}, PortExternalIDs: map[string]string{"z": "1"}})
		},
		"4 change it": func(c ovs.Client) error {
			return c.EnsurePort(ctx, ovs.Port{Bridge: "br0", Name: "p0", Type: "internal", MTU: 1300,
				ExternalIDs: map[string]string{"x": "", "w": "1"}, Trunks: []int{0, 7}})
		},
		"5 another bridge": func(c ovs.Client) error { return c.EnsureBridge(ctx, ovs.Bridge{Name: "br1", DatapathType: "netdev"}) },
		"6 move the port": func(c ovs.Client) error {
			return c.EnsurePort(ctx, ovs.Port{Bridge: "br1", Name: "p0", Type: "internal"})
		},
		"7 no such bridge": func(c ovs.Client) error { return c.EnsurePort(ctx, ovs.Port{Bridge: "br2", Name: "p1"}) },
		"8 wrong bridge":   func(c ovs.Client) error { return c.DeletePort(ctx, "br0", "p0") },
		"9 delete":         func(c ovs.Client) error { return c.DeletePort(ctx, "br1", "p0") },
		"A delete again":   func(c ovs.Client) error { return c.DeletePort(ctx, "br1", "p0") },
		"B port again": func(c ovs.Client) error {
			return c.EnsurePort(ctx, ovs.Port{Bridge: "br1", Name: "p0", Type: "internal"})
		},
		"C delete bridge":     func(c ovs.Client) error { return c.DeleteBridge(ctx, "br1") },
		"D system":            func(c ovs.Client) error { return c.SetSystem(ctx, map[string]string{"k": "1", "l": "2"}) },
		"E change the system": func(c ovs.Client) error { return c.SetSystem(ctx, map[string]string{"k": "", "l": "3", "m": ""}) },
	}
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		realErr, fakeErr := steps[name](db), steps[name](fake)
		if errors.Is(realErr, ovs.ErrNotFound) != errors.Is(fakeErr, ovs.ErrNotFound) || (realErr == nil) != (fakeErr == nil) {
			t.Errorf("%s: the real one says %v, the fake %v", name, realErr, fakeErr)
		}
		if got, want := state(t, fake), state(t, db); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the fake has\n%s\nthe real one\n%s", name, got, want)
		}
		before := fake.Writes()
		if err := steps[name](fake); (err == nil) != (fakeErr == nil) || fake.Writes() != before {
			t.Errorf("%s: repeated, it counts %d writes (%v)", name, fake.Writes()-before, err)
		}
	}
}

// state prints everything that a Client reads, without port numbers.
func state(t *testing.T, c ovs.Client) string {
	t.Helper()
	bridges, err := c.Bridges(t.Context())
	must(t, err)
	system, err := c.System(t.Context())
	must(t, err)
	out := fmt.Sprintf("system %v\n", system)
	for _, b := range bridges {
		out += fmt.Sprintf("bridge %+v\n", b)
		ports, err := c.Ports(t.Context(), b.Name)
		must(t, err)
		for _, p := range ports {
			p.OFPort = 0
			out += fmt.Sprintf("port %+v\n", p)
		}
	}
	return out
}
