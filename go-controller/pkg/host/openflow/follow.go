package openflow

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// FollowTranslations calls changed with all source translations that the flows of the bridge make,
// whoever wrote them, soon after each change of them and each time the bridge becomes reachable
// again, until ctx ends. changed must not block.
func (w *Writer) FollowTranslations(ctx context.Context, changed func([]host.Translation)) {
	w.reconnect(ctx, func() error { return w.followTranslations(ctx, changed) })
}

// followTranslations does this over one connection.
func (w *Writer) followTranslations(ctx context.Context, changed func([]host.Translation)) error {
	var mu sync.Mutex
	// By table and match: the monitor does not show priorities, and OVN has one flow for each source.
	flows := map[string]host.Translation{}
	b := newBurst(func() {
		mu.Lock()
		all := make([]host.Translation, 0, len(flows))
		for _, t := range flows {
			all = append(all, t)
		}
		mu.Unlock()
		slices.SortFunc(all, host.Translation.Compare)
		changed(slices.Compact(all))
	})
	defer b.stop()
	more, connected := false, false // more: the initial list is not complete yet
	return w.follow(ctx, func(line string) {
		if strings.Contains(line, "FLOW_MONITOR reply") {
			if more = strings.Contains(line, "more"); !more && !connected {
				b.happened()
				connected = true
			}
			return
		}
		key, t, event := translation(line)
		mu.Lock()
		before, known := flows[key]
		switch {
		case event == "":
		case t.To.IsValid() && event != "DELETED":
			flows[key] = t
		default:
			delete(flows, key)
		}
		after, is := flows[key]
		mu.Unlock()
		if !more && connected && (known != is || before != after) {
			b.happened()
		}
	})
}

// translation parses a line of a flow monitor:
//
//	event=ADDED table=45 cookie=0x1a ip,reg15=0x2,metadata=0x4,nw_src=10.244.1.3 actions=ct(commit,table=46,zone=NXM_NX_REG12[0..15],nat(src=172.18.0.33))
//
// It returns the key that identifies the flow, the translation that it applies to all packets from
// an address or a range, which is zero if there is none, and the event.
func translation(line string) (key string, t host.Translation, event string) {
	line, actions, _ := strings.Cut(line, " actions=")
	var match string
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "event":
			event = value
		case "table":
			key = value
		case "reason", "cookie", "idle_timeout", "hard_timeout", "importance":
		default:
			match = field
		}
	}
	key += " " + match
	_, to, ok := strings.Cut(actions, "nat(src=")
	if !ok {
		return key, t, event
	}
	// OVN does not write ranges of addresses and ports.
	addr, err := netip.ParseAddr(to[:max(0, strings.IndexAny(to, "),"))])
	if err != nil {
		return key, t, event
	}
	for part := range strings.SplitSeq(match, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "nw_dst", "ipv6_dst": // of a connection that comes back to where it began
			return key, host.Translation{}, event
		case "nw_src", "ipv6_src":
			if a, err := netip.ParseAddr(value); err == nil {
				t = host.Translation{Source: netip.PrefixFrom(a, a.BitLen()), To: addr}
			} else if p, err := netip.ParsePrefix(value); err == nil {
				t = host.Translation{Source: p.Masked(), To: addr}
			}
		}
	}
	return key, t, event
}
