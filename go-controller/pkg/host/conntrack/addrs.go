package conntrack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/unixctl"
)

// FlushOVSAddrs deletes the entries of the userspace datapath of Open vSwitch, in all
// zones, of connections that came for one of the addresses, or whose source address was
// translated to it, and returns how many went. It reads the table once, however many
// addresses there are. Datapaths of the kernel have their entries in the kernel's
// table. runDir is that of ovs-vswitchd.
func FlushOVSAddrs(ctx context.Context, runDir string, addrs []netip.Addr) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	vswitchd := unixctl.Daemon{RunDir: runDir, Name: "ovs-vswitchd"}
	all, err := vswitchd.Call(ctx, "dpctl/dump-dps")
	if err != nil {
		return 0, fmt.Errorf("flush conntrack of OVS: %w", err)
	}
	total := 0
	for datapath := range strings.FieldsSeq(all) {
		if !strings.HasPrefix(datapath, "netdev@") {
			continue
		}
		dump, err := vswitchd.Call(ctx, "dpctl/dump-conntrack", datapath)
		if err != nil {
			return total, fmt.Errorf("flush conntrack of OVS: %w", err)
		}
		n, err := flushEntries(ctx, vswitchd, runDir, dump, addrs)
		if total += n; err != nil {
			return total, fmt.Errorf("flush conntrack of OVS: %w", err)
		}
	}
	return total, nil
}

// flushEntries deletes the entries of a dump that have one of the addresses.
func flushEntries(ctx context.Context, vswitchd unixctl.Daemon, runDir, dump string, addrs []netip.Addr) (total int, err error) {
	portless := map[netip.Addr]bool{} // addresses of entries that cannot be named one by one
	for line := range strings.Lines(dump) {
		e, ok := parseEntry(strings.TrimSpace(line))
		if !ok {
			continue
		}
		for _, a := range []netip.Addr{e.to, e.answered} {
			if !slices.Contains(addrs, a) {
				continue
			}
			if total++; e.tuple == "" {
				portless[a] = true
			} else if _, errOne := vswitchd.Call(ctx, "dpctl/flush-conntrack", fmt.Sprintf("zone=%d", e.zone), e.tuple); errOne != nil {
				err = errors.Join(err, errOne)
			}
			break
		}
	}
	for a := range portless {
		for _, f := range []Filter{{ReplyDst: a}, {Dst: a}} {
			err = errors.Join(err, FlushOVS(ctx, runDir, 0, f))
		}
	}
	return total, err
}

// datapathEntry is an entry of a datapath in userspace.
type datapathEntry struct {
	to       netip.Addr // where its first packet went
	answered netip.Addr // where the answers go: the translated source
	zone     uint16
	tuple    string // as dpctl/flush-conntrack takes it; "" for a protocol without ports
}

// parseEntry reads a line of dpctl/dump-conntrack.
func parseEntry(line string) (datapathEntry, bool) {
	protocol, rest, _ := strings.Cut(line, ",")
	orig, ok1 := between(rest, "orig=(", ")")
	reply, ok2 := between(rest, "reply=(", ")")
	zone, err := strconv.ParseUint(cmp.Or(field(rest, "zone"), "0"), 10, 16)
	from, err1 := netip.ParseAddr(field(orig, "src"))
	to, err2 := netip.ParseAddr(field(orig, "dst"))
	answered, err3 := netip.ParseAddr(field(reply, "dst"))
	if !ok1 || !ok2 || errors.Join(err, err1, err2, err3) != nil {
		return datapathEntry{}, false
	}
	e := datapathEntry{to: to, answered: answered, zone: uint16(zone)}
	if number, ok := protocols[protocol]; ok {
		ct := "ct_nw"
		if to.Is6() {
			ct = "ct_ipv6"
		}
		e.tuple = fmt.Sprintf("%[1]s_src=%[2]s,%[1]s_dst=%[3]s,ct_nw_proto=%[4]d,ct_tp_src=%[5]s,ct_tp_dst=%[6]s",
			ct, from, to, number, field(orig, "sport"), field(orig, "dport"))
	}
	return e, true
}
