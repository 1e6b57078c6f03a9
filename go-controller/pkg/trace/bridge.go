package trace

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bridge is the path of a packet through the flows of a bridge, as Open vSwitch reports it.
type Bridge struct {
	Name  string `json:"name"`
	Flows []Flow `json:"flows,omitempty"`
	// Outputs are the ports that the packet leaves by, such as "1" or "LOCAL"; names instead of numbers where
	// known.
	Outputs []string `json:"outputs,omitempty"`
	// Source is the source address that the bridge translates to; invalid if none.
	Source netip.Addr `json:"source,omitzero"`
	// Normal means that the bridge forwards the packet like an ordinary switch.
	Normal bool `json:"normal,omitempty"`
}

// Flow is a flow that the packet matched.
type Flow struct {
	Table    int      `json:"table"`
	Match    string   `json:"match,omitempty"` // empty: every packet
	Priority int      `json:"priority"`
	Actions  []string `json:"actions,omitempty"`
	// Missed means that no flow matched and the packet is dropped.
	Missed bool `json:"missed,omitempty"`
}

var (
	bridgeName   = regexp.MustCompile(`^bridge\("([^"]*)"\)$`)
	bridgeFlow   = regexp.MustCompile(`^ *(\d+)\. (?:(.*), )?priority (\d+)(?:, cookie 0x[0-9a-f]+)?$`)
	bridgeMiss   = regexp.MustCompile(`^ *(\d+)\. No match\.$`)
	bridgeOutput = regexp.MustCompile(`^(?:output:)?(\d+|LOCAL)$`)
	bridgeNAT    = regexp.MustCompile(`nat\(src=\[?([0-9a-f.:]+?)\]?[,)]`)
)

// ParseBridge parses the output of ofproto/trace for a packet that enters a bridge; what happens in other bridges
// is ignored. names maps the bridge's port numbers to names.
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

// Dropped returns the flow that drops the packet, if it is not output anywhere. If that is the catch-all flow of a
// table, it returns the flow that sent the packet to the table.
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
