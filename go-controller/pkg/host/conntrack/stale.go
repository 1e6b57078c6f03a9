package conntrack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/unixctl"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Stale tells whether a UDP entry leads where nobody serves any more: to is where
// client sends, from is where answers are expected from, own tells the host's
// entries from those of Open vSwitch, which are in zones.
type Stale func(client netip.Addr, to, from netip.AddrPort, own bool) bool

// protocolUDP is the number of UDP in IP headers.
const protocolUDP = 17

// patience bounds what ovs-vswitchd may take to answer all questions.
const patience = 30 * time.Second

// FlushStaleUDP deletes the UDP entries that stale names, of the kernel and of the
// userspace datapath of Open vSwitch, and returns how many went. It reads the whole
// tables. What Open vSwitch was told before the call is in force by then: a packet
// that comes afterwards does not make such an entry anew. runDir is that of
// ovs-vswitchd.
func FlushStaleUDP(ctx context.Context, runDir string, stale Stale) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	vswitchd := unixctl.Daemon{RunDir: runDir, Name: "ovs-vswitchd"}
	// Without ovs-vswitchd there is nothing to wait for, and still the kernel's.
	n, errWait := 0, awaitFlows(ctx, vswitchd)
	total, err := flushKernelUDP(stale)
	if err == nil && errWait == nil {
		n, err = flushDatapathUDP(ctx, vswitchd, stale)
	}
	return total + n, errors.Join(errWait, err)
}

// awaitFlows waits until no packet goes by flows that were replaced before: the
// datapath keeps its own until they have been gone through.
func awaitFlows(ctx context.Context, vswitchd unixctl.Daemon) error {
	for range 2 { // the first round may have begun before the call
		if _, err := vswitchd.Call(ctx, "revalidator/wait"); err != nil {
			return fmt.Errorf("wait for the flows of the datapath: %w", err)
		}
	}
	return nil
}

// matcher makes a filter of a function.
type matcher func(*netlink.ConntrackFlow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (m matcher) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool { return m(flow) }

func flushKernelUDP(stale Stale) (int, error) {
	addrPort := func(ip net.IP, port uint16) netip.AddrPort {
		a, _ := netip.AddrFromSlice(ip)
		return netip.AddrPortFrom(a.Unmap(), port)
	}
	match := matcher(func(flow *netlink.ConntrackFlow) bool {
		return flow.Forward.Protocol == protocolUDP && stale(addrPort(flow.Forward.SrcIP, 0).Addr(),
			addrPort(flow.Forward.DstIP, flow.Forward.DstPort), addrPort(flow.Reverse.SrcIP, flow.Reverse.SrcPort), flow.Zone == 0)
	})
	total := 0
	for _, family := range topology.Families {
		n, err := deleteMatching(family, match)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// flushDatapathUDP is for datapaths in userspace. The others keep their entries in
// the kernel's table.
func flushDatapathUDP(ctx context.Context, vswitchd unixctl.Daemon, stale Stale) (int, error) {
	all, err := vswitchd.Call(ctx, "dpctl/dump-dps")
	if err != nil {
		return 0, err
	}
	total := 0
	for datapath := range strings.FieldsSeq(all) {
		if !strings.HasPrefix(datapath, "netdev@") {
			continue
		}
		dump, err := vswitchd.Call(ctx, "dpctl/dump-conntrack", datapath)
		if err != nil {
			return total, err
		}
		for line := range strings.Lines(dump) {
			e, ok := parseUDP(strings.TrimSpace(line))
			if !ok || !stale(e.client, e.to, e.from, e.zone == 0) {
				continue
			}
			if _, err := vswitchd.Call(ctx, "dpctl/flush-conntrack", fmt.Sprintf("zone=%d", e.zone), e.tuple); err != nil {
				return total, err
			}
			total++
		}
	}
	return total, nil
}

// udpEntry is an entry of a datapath in userspace.
type udpEntry struct {
	client   netip.Addr
	to, from netip.AddrPort
	zone     uint16
	tuple    string // as dpctl/flush-conntrack takes it
}

// parseUDP reads a line of dpctl/dump-conntrack:
//
//	udp,orig=(src=10.244.1.4,dst=10.96.0.9,sport=20000,dport=80),reply=(src=10.244.2.3,dst=10.244.1.4,sport=8080,dport=20000),zone=9,mark=2
func parseUDP(line string) (udpEntry, bool) {
	rest, ok := strings.CutPrefix(line, "udp,")
	if !ok {
		return udpEntry{}, false
	}
	orig, ok1 := between(rest, "orig=(", ")")
	reply, ok2 := between(rest, "reply=(", ")")
	zone, err := strconv.ParseUint(cmp.Or(field(rest, "zone"), "0"), 10, 16)
	if !ok1 || !ok2 || err != nil {
		return udpEntry{}, false
	}
	from, ok1 := addrPortOf(field(orig, "src"), field(orig, "sport"))
	to, ok2 := addrPortOf(field(orig, "dst"), field(orig, "dport"))
	answers, ok3 := addrPortOf(field(reply, "src"), field(reply, "sport"))
	if !ok1 || !ok2 || !ok3 {
		return udpEntry{}, false
	}
	ct := "ct_nw"
	if to.Addr().Is6() {
		ct = "ct_ipv6"
	}
	return udpEntry{client: from.Addr(), to: to, from: answers, zone: uint16(zone), tuple: fmt.Sprintf(
		"%[1]s_src=%[2]s,%[1]s_dst=%[3]s,ct_nw_proto=%[4]d,ct_tp_src=%[5]d,ct_tp_dst=%[6]d",
		ct, from.Addr(), to.Addr(), protocolUDP, from.Port(), to.Port())}, true
}

func addrPortOf(addr, port string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(addr)
	n, err2 := strconv.ParseUint(port, 10, 16)
	return netip.AddrPortFrom(a, uint16(n)), err == nil && err2 == nil
}
