package settings

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// store stands in for Open_vSwitch's external_ids.
type store struct{ ids map[string]string }

func (s *store) System(context.Context) (map[string]string, error) { return maps.Clone(s.ids), nil }

func (s *store) SetSystem(_ context.Context, ids map[string]string) error {
	maps.Copy(s.ids, ids)
	return nil
}

// TestSettings sets parameters, restores their previous values when nobody wants them any more,
// also after a restart, and leaves alone a parameter that had the value already.
func TestSettings(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth1", "wire")
	get := func(name string) string {
		return strings.TrimSpace(ns.Run("cat", "/proc/thread-self/root/proc/sys/"+name))
	}
	const filter, forward, redirects = "net/ipv4/conf/eth1/rp_filter", "net/ipv4/conf/eth1/forwarding", "net/ipv4/conf/eth1/send_redirects"
	ns.Run("sh", "-c", "echo 1 > /proc/sys/"+filter)
	was, wasRedirects := get(forward), get(redirects)
	if was == "1" || wasRedirects != "1" {
		t.Fatalf("forwarding is %s, send_redirects %s", was, wasRedirects)
	}
	kept := &store{ids: map[string]string{}}
	s := NewSet(kept)
	want := map[string]string{filter: "2", forward: "1", redirects: "1"}
	if err := s.Apply(t.Context(), "a", want); err != nil {
		t.Fatal(err)
	}
	if get(filter) != "2" || get(forward) != "1" {
		t.Errorf("rp_filter is %s, forwarding %s", get(filter), get(forward))
	}
	if got, want := kept.ids[Record], `{"net/ipv4/conf/eth1/forwarding":"0","net/ipv4/conf/eth1/rp_filter":"1"}`; got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
	// Somebody changes it back; it is set again, and the recorded value does not change.
	ns.Run("sh", "-c", "echo 0 > /proc/sys/"+filter)
	if err := s.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if get(filter) != "2" || !strings.Contains(kept.ids[Record], `rp_filter":"1"`) {
		t.Errorf("rp_filter is %s, recorded %s", get(filter), kept.ids[Record])
	}
	s = NewSet(kept) // another run
	if err := s.Apply(t.Context(), "a", map[string]string{forward: "1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if get(filter) != "1" || get(forward) != "1" {
		t.Errorf("rp_filter is %s, forwarding %s", get(filter), get(forward))
	}
	ns.Run("ip", "link", "del", "eth1")
	if err := s.Apply(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	if kept.ids[Record] != "" {
		t.Errorf("left: %s", kept.ids[Record])
	}
}

// TestLinkMadeAnew: a parameter of a link that is gone is neither an error nor forgotten while it is wanted.
func TestLinkMadeAnew(t *testing.T) {
	ns := netnstest.New(t)
	const accept = "net/ipv6/conf/eth1/accept_ra"
	value := func() string { return strings.TrimSpace(ns.Run("cat", "/proc/thread-self/root/proc/sys/"+accept)) }
	kept := &store{ids: map[string]string{}}
	s := NewSet(kept)
	for range 2 {
		ns.Veth("eth1", "wire")
		if err := s.Apply(t.Context(), "a", map[string]string{accept: "2"}); err != nil {
			t.Fatal(err)
		}
		if value() != "2" {
			t.Errorf("accept_ra is %s", value())
		}
		ns.Run("ip", "link", "del", "eth1")
		repaired := s.Repaired()
		for range 2 {
			if err := s.Resync(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if n := s.Repaired() - repaired; n != 0 {
			t.Errorf("%d repairs of a link that is gone", n)
		}
		if before, err := Recorded(kept.ids); err != nil || before[accept] != "1" {
			t.Errorf("recorded %v, %v", before, err)
		}
	}
	if err := s.Apply(t.Context(), "a", nil); err != nil || kept.ids[Record] != "" {
		t.Errorf("no longer wanted: %v, left %s", err, kept.ids[Record])
	}
}
