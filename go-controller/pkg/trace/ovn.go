package trace

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// OVN is the path of a packet through the logical network, as ovn-trace prints it.
type OVN struct {
	Steps []Step `json:"steps,omitempty"`
	// Outputs are the logical ports by which the packet leaves a router or switch, in order.
	Outputs []Output `json:"outputs,omitempty"`
	// Source is the source address that OVN translates to; invalid if none.
	Source netip.Addr `json:"source,omitzero"`
	// To is the endpoint of a Service that OVN translates the destination to, the first if there are several;
	// invalid if none.
	To netip.AddrPort `json:"to,omitzero"`
	// Endpoints is the number of possible endpoints.
	Endpoints int `json:"endpoints,omitempty"`
	// Mark is the packet's mark on leaving OVN for the bridge or the kernel.
	Mark uint32 `json:"mark,omitempty"`
	// Choices are the numbers of the next hops, if each connection takes one of several.
	Choices []int `json:"choices,omitempty"`
	// Asks means that OVN does not know the MAC address of the next hop yet. The trace then follows the ARP or ND
	// request, instead of the packet, to where it leaves the logical network.
	Asks bool `json:"asks,omitempty"`
}

// Step is a logical flow that the packet matched.
type Step struct {
	Datapath string   `json:"datapath"` // a router or a switch
	Stage    string   `json:"stage"`    // "lr_in_policy"
	Match    string   `json:"match"`    // empty: none matched
	Priority int      `json:"priority"`
	Actions  []string `json:"actions,omitempty"`
}

// Output is a logical port by which a packet leaves a router or switch.
type Output struct {
	Datapath string `json:"datapath"`
	Port     string `json:"port"`
	// Type is the type of the port: "patch", "l3gateway", "localnet", or "" for an interface.
	Type string `json:"type,omitempty"`
}

// inner are the types of ports that lead to another router or switch.
var inner = []string{"patch", "l3gateway", "chassisredirect"}

var (
	ovnPipeline  = regexp.MustCompile(`^(ingress|egress|multicast)\(dp="([^"]*)"`)
	ovnStep      = regexp.MustCompile(`^ *\d+\. (\w+)(?: \([^()]*\))?: (.*), priority (\d+), uuid [0-9a-f]+$`)
	ovnNoMatch   = regexp.MustCompile(`^ *\d+\. (\w+)(?: \([^()]*\))?: no match`)
	ovnOutput    = regexp.MustCompile(`^/\* output to "([^"]*)", type "([^"]*)" \*/$`)
	ovnSNAT      = regexp.MustCompile(`^ct_snat\(ip[46]\.src=([0-9a-f.:]+)\)$`)
	ovnBackends  = regexp.MustCompile(`^ct_lb(?:_mark)?\(backends=([^;()]*)[;)]`)
	ovnSelect    = regexp.MustCompile(`\bselect\(([^()]*)\)`)
	ovnMark      = regexp.MustCompile(`^pkt\.mark = (0x[0-9a-f]+|\d+);$`)
	ovnSeparator = regexp.MustCompile(`^-+$`)
)

// ParseOVN parses the output of ovn-trace and skips what it does not know.
func ParseOVN(text string) OVN {
	var out OVN
	datapath := ""
	back := -1 // indentation of lines about a request that has come back; -1 if none
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		word := strings.TrimSpace(line)
		indented := len(line) - len(strings.TrimLeft(line, " "))
		if back >= 0 && (word == "" || indented >= back) {
			continue
		}
		back = -1
		if m := ovnPipeline.FindStringSubmatch(word); m != nil {
			if m[1] == "ingress" && out.Asks && out.passes(m[2]) {
				back = indented // to a router that treats it as a packet, and asks again
				continue
			}
			datapath = m[2]
			continue
		}
		if m := ovnStep.FindStringSubmatch(line); m != nil {
			priority, _ := strconv.Atoi(m[3])
			out.Steps = append(out.Steps, Step{Datapath: datapath, Stage: m[1], Match: m[2], Priority: priority})
			continue
		}
		if m := ovnNoMatch.FindStringSubmatch(line); m != nil {
			out.Steps = append(out.Steps, Step{Datapath: datapath, Stage: m[1], Actions: []string{"drop;"}})
			continue
		}
		out.word(datapath, word)
	}
	return out
}

// word parses a line that does not start a flow: an action, or the heading of what an action leads to.
func (o *OVN) word(datapath, word string) {
	if m := ovnOutput.FindStringSubmatch(word); m != nil {
		o.Outputs = append(o.Outputs, Output{Datapath: datapath, Port: m[1], Type: m[2]})
		return
	}
	if m := ovnSNAT.FindStringSubmatch(word); m != nil {
		if a, err := netip.ParseAddr(m[1]); err == nil {
			o.Source = a
		}
		return
	}
	if m := ovnBackends.FindStringSubmatch(word); m != nil {
		backends := strings.Split(m[1], ",")
		if to, err := netip.ParseAddrPort(backends[0]); err == nil {
			o.To, o.Endpoints = to, len(backends)
		}
	}
	if m := ovnMark.FindStringSubmatch(word); m != nil {
		if mark, err := strconv.ParseUint(m[1], 0, 32); err == nil {
			o.Mark = uint32(mark)
		}
	}
	if m := ovnSelect.FindStringSubmatch(word); m != nil {
		for choice := range strings.SplitSeq(m[1], ",") {
			id, _, _ := strings.Cut(strings.TrimSpace(choice), "=")
			if n, err := strconv.Atoi(id); err == nil && n > 0 {
				o.Choices = append(o.Choices, n)
			}
		}
	}
	switch {
	case word == "arp", word == "nd_ns":
		o.Asks = true
	case word == "", strings.HasPrefix(word, "#"), ovnSeparator.MatchString(word), len(o.Steps) == 0:
	case strings.HasSuffix(word, ";"):
		s := &o.Steps[len(o.Steps)-1]
		s.Actions = append(s.Actions, word)
	}
}

// Exits returns the ports by which the packet leaves the logical network, without duplicates.
func (o OVN) Exits() []Output {
	var out []Output
	for _, p := range o.Outputs {
		if !slices.Contains(inner, p.Type) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// Dropped returns the flow that drops the packet, if it is not output anywhere.
func (o OVN) Dropped() (Step, bool) {
	if len(o.Exits()) > 0 || len(o.Steps) == 0 {
		return Step{}, false
	}
	for _, s := range slices.Backward(o.Steps) {
		if slices.Contains(s.Actions, "drop;") {
			return s, true
		}
	}
	return o.Steps[len(o.Steps)-1], true
}

// passes reports whether the packet passed through the router or switch.
func (o OVN) passes(datapath string) bool {
	return slices.ContainsFunc(o.Steps, func(s Step) bool { return s.Datapath == datapath })
}

// at returns the flows that the packet matched in a stage of a router or switch.
func (o OVN) at(datapath, stage string) []Step {
	var out []Step
	for _, s := range o.Steps {
		if s.Datapath == datapath && s.Stage == stage {
			out = append(out, s)
		}
	}
	return out
}
