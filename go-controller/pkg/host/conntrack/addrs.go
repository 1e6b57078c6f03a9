package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// few is how many entries of one address are deleted one by one: each is a command of a
// third of a millisecond. To delete all that match, ovs-vswitchd goes through its whole
// table, which is many times quicker, but also for a single entry.
const few = 32

// FlushOVSAddrs deletes the entries of the userspace datapath of Open vSwitch, in all
// zones, of connections that came for one of the addresses, or whose source address was
// translated to it, and returns how many there were. It reads the table once, however many
// addresses there are. Datapaths of the kernel have their entries in the kernel's
// table. runDir is that of ovs-vswitchd.
func FlushOVSAddrs(ctx context.Context, runDir string, addrs []netip.Addr) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	total := 0
	all, err := datapaths(ctx, runDir)
	for _, d := range all {
		if !d.userspace() {
			continue
		}
		n, errFlush := d.flushAddrs(ctx, addrs)
		total, err = total+n, errors.Join(err, errFlush)
	}
	if err != nil {
		return total, fmt.Errorf("flush conntrack of OVS: %w", err)
	}
	return total, nil
}

func (d datapath) flushAddrs(ctx context.Context, addrs []netip.Addr) (total int, err error) {
	entries, err := d.entries(ctx)
	if err != nil {
		return 0, err
	}
	found := map[Filter][]datapathEntry{} // by what matches all alike
	for _, e := range entries {
		for _, f := range []Filter{{ReplyDst: e.reply.dst}, {Dst: e.orig.dst}} {
			if slices.Contains(addrs, f.ReplyDst) || slices.Contains(addrs, f.Dst) {
				found[f] = append(found[f], e)
				total++
				break
			}
		}
	}
	for f, entries := range found {
		nameless := slices.ContainsFunc(entries, func(e datapathEntry) bool { return e.tuple() == "" })
		if nameless || len(entries) > few {
			err = errors.Join(err, d.flushMatching(ctx, 0, f))
			continue
		}
		for _, e := range entries {
			err = errors.Join(err, d.flush(ctx, e.zone, e.tuple()))
		}
	}
	return total, err
}
