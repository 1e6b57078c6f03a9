package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// few is how many entries of one address are deleted one by one: each takes a command of a third of
// a millisecond. To delete all entries that match, ovs-vswitchd goes through its whole table, which
// is many times quicker for many entries, but takes as long for a single one.
const few = 32

// FlushOVSAddrs deletes the entries of the userspace datapath of Open vSwitch, in all zones, of
// connections to one of the addresses, or whose source address was translated to it, and returns
// how many there were. It reads the table once, however many addresses there are. Kernel datapaths
// have their entries in the kernel's table. runDir is the directory of ovs-vswitchd's control
// socket.
func FlushOVSAddrs(ctx context.Context, runDir string, addrs []netip.Addr) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
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

// FlushOVSSources deletes the entries of one zone of connections that the addresses have opened. It
// reads the userspace table once, however many addresses there are.
func FlushOVSSources(ctx context.Context, runDir string, zone uint16, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := datapaths(ctx, runDir)
	for _, d := range all {
		err = errors.Join(err, d.flushSources(ctx, zone, addrs))
	}
	if err != nil {
		return fmt.Errorf("flush conntrack of OVS: %w", err)
	}
	return nil
}

func (d datapath) flushSources(ctx context.Context, zone uint16, addrs []netip.Addr) error {
	found := map[netip.Addr]bool{}
	if d.userspace() {
		entries, err := d.entries(ctx)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.zone == zone && slices.Contains(addrs, e.orig.src) {
				found[e.orig.src] = true
			}
		}
	} else { // its entries are in the kernel's table
		for _, a := range addrs {
			found[a] = true
		}
	}
	var err error
	for a := range found {
		err = errors.Join(err, d.flushMatching(ctx, zone, Filter{Src: a}))
	}
	return err
}

func (d datapath) flushAddrs(ctx context.Context, addrs []netip.Addr) (total int, err error) {
	entries, err := d.entries(ctx)
	if err != nil {
		return 0, err
	}
	found := map[Filter][]datapathEntry{} // by the filter that matches them all
	for _, e := range entries {
		for _, f := range []Filter{{ReplyDst: e.reply.dst}, {Dst: e.orig.dst}} {
			if slices.Contains(addrs, f.ReplyDst) || slices.Contains(addrs, f.Dst) {
				found[f] = append(found[f], e)
				total++
				break
			}
		}
	}
	var one []datapathEntry // to be deleted one by one
	for f, entries := range found {
		nameless := slices.ContainsFunc(entries, func(e datapathEntry) bool { return e.tuple() == "" })
		if nameless || len(entries) > few {
			err = errors.Join(err, d.flushMatching(ctx, 0, f))
			continue
		}
		one = append(one, entries...)
	}
	_, errFlush := d.flushEntries(ctx, one)
	return total, errors.Join(err, errFlush)
}
