package host

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
)

// Not negates a match of Spec that is a string, e.g. Not("ovn-k8s-mp0").
func Not(value string) string { return "!" + value }

// Spec is an iptables rule in parts. Rule renders it in the canonical form of iptables-save; zero
// parts match everything. Planners fill in a Spec, so that no rule is written in a form that reads
// back differently.
type Spec struct {
	Src, Dst       netip.Prefix
	NotSrc, NotDst bool
	In, Out        string // interface names, may be Not
	Protocol       string // "tcp", "udp", "sctp"; needed with DstPort
	DstPort        uint16
	SrcType        string // addrtype: "LOCAL", may be Not
	DstType        string
	CTState        string // "DNAT", "RELATED,ESTABLISHED"; may be Not
	Reply          bool   // in the reply direction of its connection
	// OrigDst and OrigDstPort are the destination of the first packet of the connection, before any
	// translation; zero: any. The port needs Protocol.
	OrigDst     netip.Addr
	OrigDstPort uint16
	// TTL is the exact time to live, or hop limit, and TTLAbove one that it exceeds; 0: any. Both need Dst, whose
	// family has the name of the match.
	TTL, TTLAbove uint8
	Mark          uint32 // exact fwmark; 0 matches any
	Unmarked      bool   // no fwmark
	// Probability in (0,1) matches this fraction of the packets at random; 0 and values from 1 on
	// match all.
	Probability float64
	Comment     string
	Target      Target
}

// Target is what a rule does, as iptables-save prints it after "-j ".
type Target string

// Targets without arguments.
const (
	Accept     Target = "ACCEPT"
	Drop       Target = "DROP"
	Return     Target = "RETURN"
	Masquerade Target = "MASQUERADE"
)

// SaveMark copies the fwmark of a packet to its connection's mark, RestoreMark the other way round.
const (
	SaveMark    Target = "CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff"
	RestoreMark Target = "CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff"
)

// SNATTo replaces the source address.
func SNATTo(addr netip.Addr) Target {
	return Target("SNAT --to-source " + addr.String())
}

// DNATTo replaces the destination address and port.
func DNATTo(to netip.AddrPort) Target {
	return Target("DNAT --to-destination " + to.String())
}

// CopyTo sends a copy to a neighbor.
func CopyTo(gateway netip.Addr) Target {
	return Target("TEE --gateway " + gateway.String())
}

// SetTTL sets the time to live, or hop limit, of packets to an address.
func SetTTL(dst netip.Addr, hops uint8) Target {
	if dst.Is6() {
		return Target(fmt.Sprintf("HL --hl-set %d", hops))
	}
	return Target(fmt.Sprintf("TTL --ttl-set %d", hops))
}

// SetMark sets the fwmark of the packet, all bits.
func SetMark(mark uint32) Target {
	return Target(fmt.Sprintf("MARK --set-xmark %#x/0xffffffff", mark))
}

// SNAT returns the rule that gives packets from src the source address to, with a comment that says
// on whose behalf.
func SNAT(src netip.Prefix, to netip.Addr, comment string) Rule {
	return Spec{Src: src, Comment: comment, Target: SNATTo(to)}.Rule()
}

// Rule renders s as iptables-save does.
func (s Spec) Rule() Rule {
	var p []string
	add := func(words ...string) { p = append(p, words...) }
	prefix := func(flag string, v netip.Prefix, not bool) {
		switch {
		case !v.IsValid():
		case not:
			add("!", flag, v.Masked().String())
		case v.Bits() > 0: // a match of all addresses is not printed
			add(flag, v.Masked().String())
		}
	}
	word := func(flag, v string) {
		if v == "" {
			return
		}
		if rest, negated := strings.CutPrefix(v, "!"); negated {
			add("!")
			v = rest
		}
		add(flag, v)
	}
	prefix("-s", s.Src, s.NotSrc)
	prefix("-d", s.Dst, s.NotDst)
	word("-i", s.In)
	word("-o", s.Out)
	word("-p", s.Protocol)
	if s.DstPort != 0 {
		add("-m", s.Protocol, "--dport", fmt.Sprint(s.DstPort))
	}
	if s.SrcType != "" || s.DstType != "" {
		add("-m", "addrtype")
		word("--src-type", s.SrcType)
		word("--dst-type", s.DstType)
	}
	if s.CTState != "" || s.Reply || s.OrigDst.IsValid() || s.OrigDstPort != 0 {
		add("-m", "conntrack")
	}
	word("--ctstate", s.CTState)
	if s.OrigDst.IsValid() {
		add("--ctorigdst", s.OrigDst.String())
	}
	if s.OrigDstPort != 0 {
		add("--ctorigdstport", fmt.Sprint(s.OrigDstPort))
	}
	if s.Reply {
		add("--ctdir", "REPLY")
	}
	ttl := "ttl"
	if s.Dst.Addr().Is6() {
		ttl = "hl"
	}
	if s.TTL != 0 {
		add("-m", ttl, "--"+ttl+"-eq", fmt.Sprint(s.TTL))
	}
	if s.TTLAbove != 0 {
		add("-m", ttl, "--"+ttl+"-gt", fmt.Sprint(s.TTLAbove))
	}
	if s.Mark != 0 {
		add("-m", "mark", "--mark", fmt.Sprintf("%#x", s.Mark))
	}
	if s.Unmarked {
		add("-m", "mark", "--mark", "0x0")
	}
	if s.Probability > 0 && s.Probability < 1 {
		add("-m", "statistic", "--mode", "random", "--probability", probability(s.Probability))
	}
	if s.Comment != "" {
		add("-m", "comment", "--comment", quote(s.Comment))
	}
	add("-j", string(s.Target))
	return Rule(strings.Join(p, " "))
}

// probability prints p as the kernel keeps it: in units of 1/2^31.
func probability(p float64) string {
	const unit = 1 << 31
	return fmt.Sprintf("%.11f", math.Round(p*unit)/unit)
}

// maxComment is the maximum length of a comment in the kernel, in bytes.
const maxComment = 255

// quote prints a comment as iptables-save does: unquoted if it is a plain word, otherwise in double
// quotes with quotes and backslashes escaped. Comments that are too long for the kernel are
// truncated, and control characters become spaces.
func quote(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxComment {
		s = strings.ToValidUTF8(s[:maxComment], "")
	}
	plain := func(r rune) bool {
		return r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return `"` + strings.NewReplacer(`"`, `\"`, `'`, `\'`, `\`, `\\`).Replace(s) + `"`
}
