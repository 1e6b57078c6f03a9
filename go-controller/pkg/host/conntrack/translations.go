package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/unixctl"
)

// FlushGatewayTranslations deletes the connections of the gateway router whose source
// translation is stale, and returns how many there were: src is the address of who opened the
// connection, dst where to, and to the address that the other side sees. The router
// has the zone of the host, 0. It reads the whole table. What Open vSwitch was told before the call
// is in force by then: a packet that comes afterwards does not make such an entry anew.
// runDir is that of ovs-vswitchd.
func FlushGatewayTranslations(ctx context.Context, runDir string, stale func(src, dst, to netip.Addr) bool) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := awaitFlows(ctx, unixctl.Daemon{RunDir: runDir, Name: "ovs-vswitchd"}); err != nil {
		return 0, err
	}
	all, err := datapaths(ctx, runDir)
	total := 0
	for _, d := range all {
		n, errFlush := d.flushTranslations(ctx, stale)
		total, err = total+n, errors.Join(err, errFlush)
	}
	if err != nil {
		return total, fmt.Errorf("flush translations of the gateway router: %w", err)
	}
	return total, nil
}

func (d datapath) flushTranslations(ctx context.Context, stale func(src, dst, to netip.Addr) bool) (total int, err error) {
	if !d.userspace() {
		return flushKernelTranslations(stale)
	}
	entries, err := d.entries(ctx)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if e.zone != 0 || e.orig.src == e.reply.dst || !stale(e.orig.src, e.orig.dst, e.reply.dst) {
			continue
		}
		if err := d.flushEntry(ctx, e); err != nil {
			return total, err
		}
		total++
	}
	return total, nil
}

// flushKernelTranslations is for the kernel's datapath.
func flushKernelTranslations(stale func(src, dst, to netip.Addr) bool) (int, error) {
	match := matcher(func(flow *netlink.ConntrackFlow) bool {
		addr := func(ip net.IP) netip.Addr {
			a, _ := netip.AddrFromSlice(ip)
			return a.Unmap()
		}
		src, to := addr(flow.Forward.SrcIP), addr(flow.Reverse.DstIP)
		return flow.Zone == 0 && src != to && stale(src, addr(flow.Forward.DstIP), to)
	})
	return deleteInFamilies(match)
}
