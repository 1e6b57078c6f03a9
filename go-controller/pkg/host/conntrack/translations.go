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
)

// FlushGatewayTranslations deletes the connections of the gateway router whose source translation
// is stale, and returns how many there were. src and dst are the addresses of the connection's
// first packet, to is the source address that the other side sees. The router has the zone of the
// host, 0. It reads the whole table. Flows that Open vSwitch got before the call take effect before
// connections are deleted, so that no later packet recreates such an entry. now is called after that, and returns what is
// stale: connections that began during the wait may have newer translations. runDir is the directory of ovs-vswitchd's control socket.
func FlushGatewayTranslations(ctx context.Context, runDir string, now func() (stale func(src, dst, to netip.Addr) bool)) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := awaitFlows(ctx, unixctl.Daemon{RunDir: runDir, Name: "ovs-vswitchd"}); err != nil {
		return 0, err
	}
	all, err := datapaths(ctx, runDir)
	total, stale := 0, now()
	for _, d := range all {
		n, errFlush := d.flushTranslations(ctx, stale)
		total, err = total+n, errors.Join(err, errFlush)
	}
	if err != nil {
		return total, fmt.Errorf("flush translations of the gateway router: %w", err)
	}
	return total, nil
}

func (d datapath) flushTranslations(ctx context.Context, stale func(src, dst, to netip.Addr) bool) (int, error) {
	if !d.userspace() {
		return flushKernelTranslations(stale)
	}
	entries, err := d.entries(ctx)
	if err != nil {
		return 0, err
	}
	return d.flushEntries(ctx, slices.DeleteFunc(entries, func(e datapathEntry) bool {
		return e.zone != 0 || e.orig.src == e.reply.dst || !stale(e.orig.src, e.orig.dst, e.reply.dst)
	}))
}

// flushKernelTranslations handles the kernel datapath.
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
