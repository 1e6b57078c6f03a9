package openflow

import (
	"fmt"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// TestRelease: what is left of a bridge that others have made is a plain switch, whether all flows were ours already or flows of
// others are beside them. These stay.
func TestRelease(t *testing.T) {
	const switching, theirs = "priority=0 actions=NORMAL", "cookie=0x7, priority=7,arp actions=drop"
	for name, c := range map[string]struct {
		before []string // flows of others
		flows  []host.Flow
		sweep  bool
		want   string
	}{
		"all ours":          {[]string{"cookie=7,priority=7,arp,actions=drop"}, flows(), true, switching},
		"beside others":     {[]string{"cookie=7,priority=7,arp,actions=drop"}, flows(), false, theirs + "\n" + switching},
		"their own default": {[]string{"cookie=7,priority=0,actions=drop"}, flows()[:1], false, "cookie=0x7, priority=0 actions=drop"},
		"none of ours":      {[]string{"cookie=7,priority=7,arp,actions=drop"}, nil, false, theirs},
	} {
		t.Run(name, func(t *testing.T) {
			o := bridge(t)
			mgmt := "unix:" + o.Dir + "/br0.mgmt"
			o.Run("ovs-ofctl", "del-flows", mgmt)
			for _, f := range c.before {
				o.Run("ovs-ofctl", version, "add-flow", mgmt, f)
			}
			if c.flows != nil {
				w := New("br0", o.Dir)
				must(t, w.Apply(t.Context(), "base", c.flows))
				if c.sweep {
					must(t, w.Sweep(t.Context()))
				}
				o.Run("ovs-ofctl", version, "add-flow", mgmt, fmt.Sprintf("cookie=%#x,table=4,priority=110,udp,actions=drop", host.LearnedCookie))
			}
			for range 2 {
				must(t, New("br0", o.Dir).Release(t.Context()))
				expect(t, "released", o, c.want)
			}
		})
	}
}
