package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/unixctl"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Stale reports whether a UDP entry leads to an address that no longer serves: client sends to to,
// and answers are expected from from. The host's entries are in zone 0, those of Open vSwitch in
// others.
type Stale func(client netip.Addr, to, from netip.AddrPort, zone uint16) bool

// FlushStaleUDP deletes the UDP entries that are stale, of the kernel and of the userspace datapath
// of Open vSwitch, and returns how many it deleted. It reads the whole tables. Flows that Open
// vSwitch got before the call take effect before entries are deleted, so that no later packet
// recreates such an entry. now is called after that, and returns what is stale: entries from during
// the wait may be right by then. runDir is the directory of ovs-vswitchd's control socket.
func FlushStaleUDP(ctx context.Context, runDir string, now func() Stale) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	vswitchd := unixctl.Daemon{RunDir: runDir, Name: "ovs-vswitchd"}
	// Without ovs-vswitchd there is nothing to wait for, but the kernel's entries can still be
	// deleted.
	n, errWait := 0, awaitFlows(ctx, vswitchd)
	stale := now()
	total, err := flushKernelUDP(stale)
	if err == nil && errWait == nil {
		n, err = flushDatapathUDP(ctx, runDir, stale)
	}
	return total + n, errors.Join(errWait, err)
}

// awaitFlows waits until no packet uses flows that were replaced earlier: the datapath caches flows
// until they are revalidated.
func awaitFlows(ctx context.Context, vswitchd unixctl.Daemon) error {
	for range 3 { // two may have begun before ovs-vswitchd noticed the change, see openflow.Writer.Settle
		if err := vswitchd.AwaitRevalidation(ctx); err != nil {
			return fmt.Errorf("wait for the flows of the datapath: %w", err)
		}
	}
	return nil
}

// matcher makes a netlink.CustomConntrackFilter of a function.
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
			addrPort(flow.Forward.DstIP, flow.Forward.DstPort), addrPort(flow.Reverse.SrcIP, flow.Reverse.SrcPort), flow.Zone)
	})
	return deleteInFamilies(match)
}

// deleteInFamilies deletes entries of both families.
func deleteInFamilies(f netlink.CustomConntrackFilter) (total int, err error) {
	for _, family := range topology.Families {
		n, err := deleteMatching(family, f)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// flushDatapathUDP handles userspace datapaths. Others keep their entries in the kernel's table.
func flushDatapathUDP(ctx context.Context, runDir string, stale Stale) (int, error) {
	all, err := datapaths(ctx, runDir)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, d := range all {
		if !d.userspace() {
			continue
		}
		entries, err := d.entries(ctx)
		if err != nil {
			return total, err
		}
		n, err := d.flushEntries(ctx, slices.DeleteFunc(entries, func(e datapathEntry) bool {
			to, from := netip.AddrPortFrom(e.orig.dst, e.orig.dport), netip.AddrPortFrom(e.reply.src, e.reply.sport)
			return protocols[e.protocol] != protocolUDP || !stale(e.orig.src, to, from, e.zone)
		}))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
