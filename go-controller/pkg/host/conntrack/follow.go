package conntrack

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// mostTracked is how many entries of one connection Follow returns at most.
const mostTracked = 16

// Connection identifies a connection by its first packet.
type Connection struct {
	Protocol uint8 // 6, 17
	From, To netip.AddrPort
}

// Tracked is an entry of a connection. Entries are in the order in which the packet meets them.
type Tracked struct {
	Kernel bool // entry of the host itself, which has no zone; otherwise of Open vSwitch
	Zone   uint16
	// From is the source before the entry's translation, and Becomes the one after it. They are
	// equal if it translates nothing.
	From, Becomes netip.AddrPort
}

// Follow returns the entries of a connection, and of the connections that these entries translate
// it to, in the caller's network namespace and in the userspace datapaths of Open vSwitch. It
// changes nothing. runDir is the directory of ovs-vswitchd's control socket.
func Follow(ctx context.Context, runDir string, c Connection) ([]Tracked, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	family := netlink.InetFamily(netlink.FAMILY_V4)
	if c.From.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
	if err != nil {
		return nil, fmt.Errorf("list conntrack of %s: %w", topology.FamilyOf(c.From.Addr()), err)
	}
	var all []tracked
	for _, f := range flows {
		if f.Forward.Protocol == c.Protocol {
			all = append(all, tracked{f.Zone == 0, f.Zone, directionOf(f.Forward), directionOf(f.Reverse)})
		}
	}
	dps, err := datapaths(ctx, runDir)
	if err != nil {
		return nil, fmt.Errorf("dump conntrack of OVS: %w", err)
	}
	for _, d := range dps {
		if !d.userspace() {
			continue
		}
		entries, err := d.entries(ctx)
		if err != nil {
			return nil, fmt.Errorf("dump conntrack of OVS: %w", err)
		}
		for _, e := range entries {
			if protocols[e.protocol] == c.Protocol {
				all = append(all, tracked{false, e.zone, e.orig, e.reply})
			}
		}
	}
	return follow(all, c), nil
}

// tracked is an entry of either table.
type tracked struct {
	kernel      bool
	zone        uint16
	orig, reply direction
}

func directionOf(t netlink.IPTuple) direction {
	addr := func(ip net.IP) netip.Addr {
		a, _ := netip.AddrFromSlice(ip)
		return a.Unmap()
	}
	return direction{addr(t.SrcIP), addr(t.DstIP), t.SrcPort, t.DstPort}
}

// follow returns the entries of a packet, of the packet that they translate it to, and so on.
func follow(all []tracked, c Connection) []Tracked {
	var out []Tracked
	packets := []direction{{c.From.Addr(), c.To.Addr(), c.From.Port(), c.To.Port()}}
	for i := 0; i < len(packets); i++ {
		for _, e := range all {
			if e.orig != packets[i] {
				continue
			}
			if len(out) == mostTracked {
				return out
			}
			out = append(out, Tracked{e.kernel, e.zone, netip.AddrPortFrom(e.orig.src, e.orig.sport), netip.AddrPortFrom(e.reply.dst, e.reply.dport)})
			becomes := direction{e.reply.dst, e.reply.src, e.reply.dport, e.reply.sport}
			if !slices.Contains(packets, becomes) { // nothing is followed twice
				packets = append(packets, becomes)
			}
		}
	}
	return out
}
