package trace

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bridge is the way of a packet through the flows of a bridge, as Open vSwitch tells it.
type Bridge struct {
	Name  string `json:"name"`
	Flows []Flow `json:"flows,omitempty"`
	// Outputs are the ports that it leaves by: "1", "LOCAL"; with names where those are
	// known.
	Outputs []string `json:"outputs,omitempty"`
	// Source is the address that the bridge gives it; invalid: none.
	Source netip.Addr `json:"source,omitzero"`
	// Normal: the bridge forwards it as a plain switch does.
	Normal bool `json:"normal,omitempty"`
}

// Flow is a flow that the packet has met.
type Flow struct {
	Table    int      `json:"table"`
	Match    string   `json:"match,omitempty"` // empty: every packet
	Priority int      `json:"priority"`
	Actions  []string `json:"actions,omitempty"`
	// Missed: none matched, and the packet is dropped.
	Missed bool `json:"missed,omitempty"`
}

var (
	bridgeName   = regexp.MustCompile(`^bridge\("([^"]*)"\)$`)
	bridgeFlow   = regexp.MustCompile(`^ *(\d+)\. (?:(.*), )?priority (\d+)(?:, cookie 0x[0-9a-f]+)?$`)
	bridgeMiss   = regexp.MustCompile(`^ *(\d+)\. No match\.$`)
	bridgeOutput = regexp.MustCompile(`^(?:output:)?(\d+|LOCAL)$`)
	bridgeNAT    = regexp.MustCompile(`nat\(src=\[?([0-9a-f.:]+?)\]?[,)]`)
)

// ParseBridge reads what ofproto/trace prints of a packet that enters a bridge; what becomes
// of it in other bridges is passed over. names are those of its ports, by number.
func ParseBridge(bridge, text string, names map[int]string) Bridge {
	out := Bridge{Name: bridge}
	in := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		word := strings.TrimSpace(line)
		if m := bridgeName.FindStringSubmatch(word); m != nil {
			in = m[1]
			continue
		}
		if in != bridge {
			continue
		}
		if m := bridgeMiss.FindStringSubmatch(line); m != nil {
			table, _ := strconv.Atoi(m[1])
			out.Flows = append(out.Flows, Flow{Table: table, Missed: true})
			continue
		}
		if m := bridgeFlow.FindStringSubmatch(line); m != nil {
			table, _ := strconv.Atoi(m[1])
			priority, _ := strconv.Atoi(m[3])
			out.Flows = append(out.Flows, Flow{Table: table, Match: m[2], Priority: priority})
			continue
		}
		if strings.HasPrefix(line, " ") {
			out.action(word, names)
		} else if strings.HasPrefix(word, "Final flow:") || strings.HasPrefix(word, "Datapath actions:") {
			in = "" // until the packet comes back from connection tracking
		}
	}
	return out
}

func (b *Bridge) action(word string, names map[int]string) {
	if len(b.Flows) == 0 || word == "" || strings.HasPrefix(word, "->") || strings.HasPrefix(word, ">>") {
		return
	}
	f := &b.Flows[len(b.Flows)-1]
	f.Actions = append(f.Actions, word)
	switch m := bridgeOutput.FindStringSubmatch(word); {
	case m != nil:
		port := m[1]
		if n, err := strconv.Atoi(port); err == nil && names[n] != "" {
			port = names[n]
		}
		if !slices.Contains(b.Outputs, port) {
			b.Outputs = append(b.Outputs, port)
		}
	case word == "NORMAL":
		b.Normal = true
	}
	if m := bridgeNAT.FindStringSubmatch(word); m != nil {
		if a, err := netip.ParseAddr(m[1]); err == nil {
			b.Source = a
		}
	}
}

// Dropped is the flow that drops the packet, if it leaves nowhere: where a table drops all that
// it has no use for, the flow that has sent the packet there.
func (b Bridge) Dropped() (Flow, bool) {
	if len(b.Outputs) > 0 || b.Normal || len(b.Flows) == 0 {
		return Flow{}, false
	}
	last := len(b.Flows) - 1
	for ; last > 0; last-- {
		f := b.Flows[last]
		if f.Missed || f.Priority > 0 || !slices.Contains(b.Flows[last-1].Actions, fmt.Sprintf("resubmit(,%d)", f.Table)) {
			break
		}
	}
	return b.Flows[last], true
}
