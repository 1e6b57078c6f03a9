package suite

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// lostPatience is how long a node may take to be reachable again after its bridges were deleted.
const lostPatience = 15 * time.Second

// lostSwitch deletes on a node, one after the other, the external bridge, the integration bridge
// and the whole Open vSwitch database: each time the host and the pods on it are soon reachable
// again, and the state is as before.
func (s *suite) lostSwitch(t *testing.T) {
	const node, pod = "ovn-worker", "a"
	before := s.steadyState(t)
	zones := s.zones(t, node)
	exec := func(args ...string) {
		t.Helper()
		if _, err := s.Kin.Exec(t.Context(), node, args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, loss := range []struct {
		name string
		lose func()
	}{
		{"ExternalBridge", func() { exec("ovs-vsctl", "del-br", "breth0") }},
		{"IntegrationBridge", func() { exec("ovs-vsctl", "del-br", "br-int") }},
		{"Database", func() {
			for _, verb := range []string{"stop", "start"} {
				if err := s.Service(t.Context(), verb, node, "ovsdb-server"); err != nil {
					t.Fatal(err)
				}
				if verb == "stop" {
					exec("rm", "/etc/openvswitch/conf.db")
				}
			}
		}},
	} {
		t.Run(loss.name, func(t *testing.T) {
			loss.lose()
			start := time.Now()
			for _, is4 := range []bool{true, false} {
				to, err := pick(lab.OutsideAddresses, is4)
				if err != nil {
					t.Fatal(err)
				}
				for who, call := range map[string]func(context.Context) error{
					"the host": func(ctx context.Context) error { _, err := s.SeenFromMachine(ctx, node, to); return err },
					"the pod":  func(ctx context.Context) error { _, err := s.SeenFromPod(ctx, pod, to); return err },
				} {
					if err := lab.Until(t.Context(), lostPatience, who, call); err != nil {
						t.Error(err)
					}
					t.Logf("%s: %s reached %s after %s", loss.name, who, to, time.Since(start).Round(time.Millisecond))
				}
			}
			s.connectivity(t)
			// Without the recorded zones, the next ovn-controller would assign others and break
			// open connections.
			if now := s.zones(t, node); !slices.Equal(now, zones) {
				t.Errorf("zones of conntrack are %v, were %v", now, zones)
			}
		})
	}
	s.same(t, before.Anonymous(), lab.State.Anonymous)
}

// zones returns the conntrack zones that br-int on a node records for routers, which outlive pods,
// sorted.
func (s *suite) zones(t *testing.T, node string) []string {
	t.Helper()
	ids, err := s.Kin.Exec(t.Context(), node, "ovs-vsctl", "get", "bridge", "br-int", "external_ids")
	if err != nil {
		t.Fatal(err)
	}
	var zones []string
	for id := range strings.SplitSeq(strings.Trim(strings.TrimSpace(ids), "{}"), ", ") {
		if strings.HasPrefix(id, "ct-zone-") && (strings.Contains(id, "_dnat=") || strings.Contains(id, "_snat=")) {
			zones = append(zones, id)
		}
	}
	slices.Sort(zones)
	return zones
}
