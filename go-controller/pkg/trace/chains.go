package trace

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Packet is what iptables rules match on: the first packet of a new connection that the node forwards.
type Packet struct {
	Source, Destination netip.Addr
	Protocol            string
	Port                uint16 // of the destination
	In, Out             string // interfaces
	Mark                uint32
	Local               func(netip.Addr) bool // whether an address belongs to the node
}

// Verdict is what an iptables table does with a packet.
type Verdict struct {
	// Rules are the deciding rules, as iptables-save prints them.
	Rules []string `json:"rules,omitempty"`
	// Target is "ACCEPT", "SNAT", "MASQUERADE", "DROP", "REJECT" or another.
	Target string `json:"target,omitempty"`
	// Source is the address that SNAT translates to.
	Source netip.Addr `json:"source,omitzero"`
	// Unsure are rules before the deciding one that match on something a trace does not know.
	Unsure []string `json:"unsure,omitempty"`
}

// deepest limits how deeply chains may call each other.
const deepest = 32

// Walk returns what a table, as printed by iptables-save, does with a packet that enters one of its built-in
// chains.
func Walk(save, chain string, p Packet) Verdict {
	w := walk{rules: map[string][]string{}, packet: p}
	policy := "ACCEPT"
	for line := range strings.Lines(save) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, ":"); ok {
			if f := strings.Fields(name); len(f) > 1 && f[0] == chain && f[1] != "-" {
				policy = f[1]
			}
		}
		if rest, ok := strings.CutPrefix(line, "-A "); ok {
			name, rule, _ := strings.Cut(rest, " ")
			w.rules[name] = append(w.rules[name], rule)
		}
	}
	if !w.chain(chain, 0) {
		w.out.Target = policy
	}
	return w.out
}

type walk struct {
	rules  map[string][]string
	packet Packet
	out    Verdict
	steps  int
}

// mostSteps limits how many rules are evaluated, since chains can call each other many times.
const mostSteps = 100000

// chain reports whether a rule of the chain, or of a chain that it calls, decides.
func (w *walk) chain(name string, depth int) bool {
	if depth > deepest {
		return false
	}
	for _, rule := range w.rules[name] {
		if w.steps++; w.steps > mostSteps {
			return false
		}
		r := parseRule(rule)
		matches, sure := r.matches(w.packet)
		if !matches {
			continue
		}
		if !sure {
			if !slices.Contains([]string{"", "RETURN", "LOG", "MARK", "CONNMARK"}, r.target) {
				w.out.Unsure = append(w.out.Unsure, name+": "+rule)
			}
			continue
		}
		if _, ok := w.rules[r.target]; ok {
			if w.chain(r.target, depth+1) {
				return true
			}
			continue
		}
		switch r.target {
		case "RETURN":
			return false
		case "SNAT", "MASQUERADE", "ACCEPT", "DROP", "REJECT", "DNAT", "QUEUE", "NFQUEUE":
			w.out.Target = r.target
			w.out.Rules = append(w.out.Rules, name+": "+rule)
			w.out.Source = r.source
			return true
		}
	}
	return false
}

// rule is a parsed rule.
type rule struct {
	tests  []func(Packet) bool
	unsure bool // has a test that a trace cannot evaluate
	target string
	source netip.Addr // of SNAT
}

// matches reports whether the packet passes all tests that a trace can evaluate, and whether there are no other
// tests.
func (r rule) matches(p Packet) (matches, sure bool) {
	for _, t := range r.tests {
		if !t(p) {
			return false, true
		}
	}
	return true, !r.unsure
}

// parseRule parses what follows "-A CHAIN ".
func parseRule(text string) rule {
	var r rule
	words := fields(text)
	not := false
	for i := 0; i < len(words); i++ {
		word, next := words[i], ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		if word == "!" {
			not = true
			continue
		}
		if word == "-j" || word == "-g" {
			r.target = next
			if next == "SNAT" && i+3 < len(words) && words[i+2] == "--to-source" {
				r.source = firstAddr(words[i+3])
			}
			return r
		}
		test, takes, known := testOf(word, next)
		switch {
		case !known:
			r.unsure = true
		case test != nil:
			negated := not
			r.tests = append(r.tests, func(p Packet) bool { return test(p) != negated })
		}
		if takes {
			i++
		}
		not = false
	}
	return r
}

// testOf returns the test for an option of a rule, nil if it needs none, and reports whether the option takes a
// value and whether it is known.
func testOf(option, value string) (test func(Packet) bool, takes, known bool) {
	switch option {
	case "-s", "-d":
		prefix, err := netip.ParsePrefix(value)
		if a, bad := netip.ParseAddr(value); bad == nil {
			prefix, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, true, false
		}
		if option == "-s" {
			return func(p Packet) bool { return prefix.Contains(p.Source) }, true, true
		}
		return func(p Packet) bool { return prefix.Contains(p.Destination) }, true, true
	case "-i":
		return func(p Packet) bool { return isInterface(value, p.In) }, true, true
	case "-o":
		return func(p Packet) bool { return isInterface(value, p.Out) }, true, true
	case "-p":
		return func(p Packet) bool { return value == p.Protocol || value == "all" }, true, true
	case "-m", "--comment":
		return nil, true, true
	case "--dport":
		port, err := strconv.ParseUint(value, 10, 16)
		return func(p Packet) bool { return uint64(p.Port) == port }, true, err == nil
	case "--mark":
		text, maskText, masked := strings.Cut(value, "/")
		mark, err := strconv.ParseUint(text, 0, 32)
		mask := uint64(0xffffffff)
		if masked && err == nil {
			mask, err = strconv.ParseUint(maskText, 0, 32)
		}
		return func(p Packet) bool { return uint64(p.Mark)&mask == mark }, true, err == nil
	case "--ctstate":
		return func(Packet) bool { return slices.Contains(strings.Split(value, ","), "NEW") }, true, true
	case "--ctdir":
		return func(Packet) bool { return value == "ORIGINAL" }, true, true
	case "--src-type", "--dst-type":
		if value != "LOCAL" {
			return nil, true, false
		}
		return func(p Packet) bool {
			a := p.Source
			if option == "--dst-type" {
				a = p.Destination
			}
			return p.Local != nil && p.Local(a)
		}, true, true
	}
	return nil, false, false
}

// isInterface reports whether an interface matches a name, which may end with the wildcard "+".
func isInterface(name, is string) bool {
	if prefix, ok := strings.CutSuffix(name, "+"); ok {
		return strings.HasPrefix(is, prefix)
	}
	return name == is
}

// firstAddr returns the first address of a "--to-source" value.
func firstAddr(text string) netip.Addr {
	if a, err := netip.ParseAddr(text); err == nil {
		return a
	}
	if p, err := netip.ParseAddrPort(text); err == nil {
		return p.Addr()
	}
	first, _, _ := strings.Cut(text, "-")
	a, _ := netip.ParseAddr(first)
	return a
}

// fields splits a rule into words; quoted words may contain spaces.
func fields(text string) []string {
	var out []string
	var word strings.Builder
	quoted, some := false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted && i+1 < len(text):
			i++
			word.WriteByte(text[i])
		case c == '"':
			quoted, some = !quoted, true
		case c == ' ' && !quoted:
			if some || word.Len() > 0 {
				out = append(out, word.String())
			}
			word.Reset()
			some = false
		default:
			word.WriteByte(c)
		}
	}
	if some || word.Len() > 0 {
		out = append(out, word.String())
	}
	return out
}
