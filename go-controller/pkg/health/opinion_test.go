package health

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestOpinion asks about n1 on a host that hears some of the others.
func TestOpinion(t *testing.T) {
	hop, n1, n2 := netip.MustParseAddr("172.18.0.1"), netip.MustParseAddr("172.18.0.3"), netip.MustParseAddr("172.18.0.4")
	for what, c := range map[string]struct {
		hears []netip.Addr
		lost  bool // to Kubernetes
		want  bool
	}{
		"only its tunnels are cut":                      {hears: []netip.Addr{hop, n1, n2}},
		"its tunnels are cut, and the next hop is mute": {hears: []netip.Addr{n1, n2}},
		"it is dead":                           {hears: []netip.Addr{hop, n2}, want: true},
		"it is dead, and the next hop is mute": {hears: []netip.Addr{n2}, want: true},
		"all others are dead":                  {hears: []netip.Addr{hop}, want: true},
		"we are cut off":                       {},
		"all is mute, and it was given up":     {lost: true, want: true},
		"it answers, and was given up":         {hears: []netip.Addr{n1}, lost: true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(c.hears...)
				w.rtt = time.Millisecond
				deaf := newWorld() // a filtered port
				o := Opinion{
					Probers:  []Prober{deaf, w},
					Hosts:    func() map[string][]netip.Addr { return map[string][]netip.Addr{"n1": {n1}, "n2": {n2}} },
					NextHops: func() []netip.Addr { return []netip.Addr{hop} },
					Lost:     func(string) bool { return c.lost },
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeout/2)
				defer cancel()
				if got := o.Dead(ctx, "n1"); got != c.want {
					t.Errorf("dead is %t, want %t", got, c.want)
				}
				if o.Dead(ctx, "n9") != c.lost {
					t.Error("of a node without an address Kubernetes has the say")
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}
