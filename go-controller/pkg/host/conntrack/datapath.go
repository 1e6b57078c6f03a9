package conntrack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/unixctl"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// DefaultRunDir is the directory of ovs-vswitchd's control socket.
const DefaultRunDir = "/var/run/openvswitch"

// callTimeout is the timeout for all requests of one call to ovs-vswitchd.
const callTimeout = 30 * time.Second

// protocols are the protocols whose entries are identified by ports, with their numbers in IP
// headers.
var protocols = map[string]uint8{"tcp": 6, "udp": protocolUDP, "sctp": 132}

// protocolUDP is the number of UDP in IP headers.
const protocolUDP = 17

// datapath is a datapath of Open vSwitch.
type datapath struct {
	vswitchd unixctl.Daemon
	name     string // "netdev@ovs-netdev"
}

// datapaths returns the datapaths of an ovs-vswitchd.
func datapaths(ctx context.Context, runDir string) ([]datapath, error) {
	vswitchd := unixctl.Daemon{RunDir: runDir, Name: "ovs-vswitchd"}
	names, err := vswitchd.Call(ctx, "dpctl/dump-dps")
	if err != nil {
		return nil, err
	}
	var all []datapath
	for name := range strings.FieldsSeq(names) {
		all = append(all, datapath{vswitchd, name})
	}
	return all, nil
}

// userspace reports whether the datapath has a connection tracking table of its own. Others have
// their entries in the kernel's table.
func (d datapath) userspace() bool { return strings.HasPrefix(d.name, "netdev@") }

// entries reads the whole table.
func (d datapath) entries(ctx context.Context) ([]datapathEntry, error) {
	dump, err := d.vswitchd.Call(ctx, "dpctl/dump-conntrack", d.name)
	if err != nil {
		return nil, err
	}
	var all []datapathEntry
	for line := range strings.Lines(dump) {
		if e, ok := parseEntry(strings.TrimSpace(line)); ok {
			all = append(all, e)
		}
	}
	return all, nil
}

// flush deletes entries by zone, 0 being all zones, and by tuples. Open vSwitch 3.1 takes the name
// of the datapath only together with zone and both tuples, so there must be only one datapath, as
// there is on a node.
func (d datapath) flush(ctx context.Context, zone uint16, tuples ...string) error {
	var args []string
	if zone != 0 {
		args = append(args, fmt.Sprintf("zone=%d", zone))
	}
	return d.flushArgs(ctx, append(args, tuples...)...)
}

// flushArgs makes ovs-vswitchd delete entries. It is not an error if a given entry has gone in the
// meantime.
func (d datapath) flushArgs(ctx context.Context, args ...string) error {
	_, err := d.flushEach(ctx, [][]string{args})
	return err
}

// flushEach calls dpctl/flush-conntrack with each of several lists of arguments, as flushArgs does with one, even if some
// calls fail. It returns how many succeeded.
func (d datapath) flushEach(ctx context.Context, args [][]string) (flushed int, err error) {
	if len(args) == 0 {
		return 0, nil
	}
	var failed error
	err = d.vswitchd.CallEach(ctx, "dpctl/flush-conntrack", args, func(_ int, _ string, err error) {
		switch {
		case err == nil, strings.Contains(err.Error(), "failed to flush conntrack (No such file or directory)"):
			flushed++
		case failed == nil:
			failed = err
		}
	})
	return flushed, errors.Join(err, failed)
}

// flushEntries deletes entries one by one, and returns how many. For a protocol without ports it deletes all entries with
// the same addresses.
func (d datapath) flushEntries(ctx context.Context, entries []datapathEntry) (flushed int, err error) {
	var args [][]string
	for _, e := range entries {
		if e.tuple() != "" {
			args = append(args, entryArgs(e.zone, e.tuple()))
			continue
		}
		errFlush := d.flushMatching(ctx, 0, Filter{Src: e.orig.src, Dst: e.orig.dst, ReplyDst: e.reply.dst})
		if errFlush == nil {
			flushed++
		}
		err = errors.Join(err, errFlush)
	}
	n, errFlush := d.flushEach(ctx, args)
	return flushed + n, errors.Join(err, errFlush)
}

// entryArgs are the arguments to delete one entry. Zone 0 is given explicitly, since no zone means all zones.
func entryArgs(zone uint16, tuple string) []string {
	return []string{fmt.Sprintf("zone=%d", zone), tuple}
}

// walks is how often a table is gone through at most for a filter.
const walks = 20

// flushMatching deletes all entries of a zone, 0 being all zones, that match a filter.
func (d datapath) flushMatching(ctx context.Context, zone uint16, f Filter) error {
	families, err := f.families()
	if err != nil {
		return err
	}
	for _, family := range families {
		tuples := []string{f.tuple(family, f.Src, f.Dst, f.DstPort)}
		if f.ReplySrc.IsValid() || f.ReplyDst.IsValid() {
			tuples = append(tuples, f.tuple(family, f.ReplySrc, f.ReplyDst, 0))
		}
		// A userspace table shrinks while ovs-vswitchd goes through it to delete what matches, and
		// then some entries are skipped: seen with Open vSwitch 3.1 from a few thousand entries on.
		for range walks {
			if err := d.flush(ctx, zone, tuples...); err != nil {
				return err
			}
			if left, err := d.has(ctx, zone, f); err != nil || !left {
				if err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// has reports whether a userspace table has an entry that matches a filter.
func (d datapath) has(ctx context.Context, zone uint16, f Filter) (bool, error) {
	if !d.userspace() {
		return false, nil
	}
	entries, err := d.entries(ctx)
	for _, e := range entries {
		if (zone == 0 || e.zone == zone) && f.matches(e) {
			return true, err
		}
	}
	return false, err
}

// FlushOVS deletes matching entries of one zone of the OVS datapath, zone 0 being all zones. runDir
// is the directory of ovs-vswitchd's control socket, DefaultRunDir on a node.
func FlushOVS(ctx context.Context, runDir string, zone uint16, f Filter) error {
	_, err := f.families()
	if err == nil && f.Mark != 0 {
		err = errors.New("OVS cannot filter by mark")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var all []datapath
	if err == nil {
		all, err = datapaths(ctx, runDir)
	}
	for _, d := range all {
		err = errors.Join(err, d.flushMatching(ctx, zone, f))
	}
	if err != nil {
		return fmt.Errorf("flush conntrack of OVS: %w", err)
	}
	return nil
}

// tuple writes one direction of f as dpctl/flush-conntrack takes it.
func (f Filter) tuple(family topology.Family, src, dst netip.Addr, port uint16) string {
	name := tuplePrefix(family)
	var parts []string
	if src.IsValid() {
		parts = append(parts, name+"_src="+src.String())
	}
	if dst.IsValid() {
		parts = append(parts, name+"_dst="+dst.String())
	}
	if f.Protocol != 0 {
		parts = append(parts, fmt.Sprintf("ct_nw_proto=%d", f.Protocol))
	}
	if port != 0 {
		parts = append(parts, fmt.Sprintf("ct_tp_dst=%d", port))
	}
	return strings.Join(parts, ",")
}

// tuplePrefix returns the prefix of the names of addresses in a tuple.
func tuplePrefix(family topology.Family) string {
	if family == topology.IPv6 {
		return "ct_ipv6"
	}
	return "ct_nw"
}

func (f Filter) matches(e datapathEntry) bool {
	is := func(want, have netip.Addr) bool { return !want.IsValid() || want == have }
	return is(f.Src, e.orig.src) && is(f.Dst, e.orig.dst) && is(f.ReplySrc, e.reply.src) && is(f.ReplyDst, e.reply.dst) &&
		(f.Protocol == 0 || f.Protocol == protocols[e.protocol]) && (f.DstPort == 0 || f.DstPort == e.orig.dport)
}

// datapathEntry is an entry of a datapath.
type datapathEntry struct {
	protocol    string // "tcp", "icmp"
	orig, reply direction
	zone        uint16
	labels      string
}

// direction is one direction of a connection; ports are 0 for protocols without ports.
type direction struct {
	src, dst     netip.Addr
	sport, dport uint16
}

// tuple returns the entry in the notation of dpctl/flush-conntrack, without its zone, or "" for a
// protocol without ports.
func (e datapathEntry) tuple() string {
	number, ok := protocols[e.protocol]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%[1]s_src=%[2]s,%[1]s_dst=%[3]s,ct_nw_proto=%[4]d,ct_tp_src=%[5]d,ct_tp_dst=%[6]d",
		tuplePrefix(topology.FamilyOf(e.orig.dst)), e.orig.src, e.orig.dst, number, e.orig.sport, e.orig.dport)
}

// parseEntry reads a line of dpctl/dump-conntrack:
//
//	udp,orig=(src=10.244.1.4,dst=10.96.0.9,sport=20000,dport=80),reply=(src=10.244.2.3,dst=10.244.1.4,sport=8080,dport=20000),zone=9,mark=2
//	tcp,orig=(src=172.31.51.1,dst=10.244.1.3,sport=48554,dport=8080),reply=(...),zone=6,mark=65536,labels=0x242ac12003300000000,protoinfo=(...)
func parseEntry(line string) (datapathEntry, bool) {
	protocol, rest, _ := strings.Cut(line, ",")
	e := datapathEntry{protocol: protocol, labels: field(rest, "labels")}
	_, ports := protocols[protocol]
	zone, err := strconv.ParseUint(cmp.Or(field(rest, "zone"), "0"), 10, 16)
	e.zone = uint16(zone)
	for name, d := range map[string]*direction{"orig=(": &e.orig, "reply=(": &e.reply} {
		text, ok := between(rest, name, ")")
		if !ok {
			return datapathEntry{}, false
		}
		var errs [4]error
		d.src, errs[0] = netip.ParseAddr(field(text, "src"))
		d.dst, errs[1] = netip.ParseAddr(field(text, "dst"))
		if ports {
			d.sport, errs[2] = port(field(text, "sport"))
			d.dport, errs[3] = port(field(text, "dport"))
		}
		err = errors.Join(err, errors.Join(errs[:]...))
	}
	return e, err == nil
}

func port(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err
}

func between(s, open, end string) (string, bool) {
	_, s, ok := strings.Cut(s, open)
	if !ok {
		return "", false
	}
	s, _, ok = strings.Cut(s, end)
	return s, ok
}

// field returns the value of "name=value" in a comma-separated list, skipping what is in
// parentheses.
func field(s, name string) string {
	depth, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i == len(s) || s[i] == ',' && depth == 0 {
			if key, value, ok := strings.Cut(s[start:i], "="); ok && key == name {
				return value
			}
			start = i + 1
			continue
		}
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
	}
	return ""
}
