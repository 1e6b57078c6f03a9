package host

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Kernel reads and writes one kind of kernel object. List returns only what is
// ours; Add of what exists with the same value and Delete of what is gone are no
// errors. Where another value has to be replaced, Set deletes and adds, unless
// the Kernel is a Replacer too. Keys are printed with fmt to order writes.
type Kernel[K comparable, V any] interface {
	List(context.Context) (map[K]V, error)
	Add(context.Context, K, V) error
	Delete(context.Context, K, V) error
}

// Replacer is a Kernel that can change an object without a moment in which it
// is missing.
type Replacer[K comparable, V any] interface {
	Replace(ctx context.Context, key K, old, value V) error
}

// Canonical is a Kernel some of whose keys have several spellings. Set compares
// the form it returns, which is the one List uses.
type Canonical[K comparable] interface {
	Canonical(K) K
}

// Reducer is a Kernel some of whose keys have an effect only beside others. Reduce
// deletes those from the union of what is wanted that have none.
type Reducer[K comparable, V any] interface {
	Reduce(union map[K]V)
}

// Protocol marks ip rules and routes of ours (RTA_PROTOCOL, FRA_PROTOCOL): 79,
// the letter O, which no routing daemon uses. "ip route show proto 79" shows them.
const Protocol = 79

// Writer is the face of Set that features see.
type Writer[K comparable, V any] interface {
	// Apply replaces what contributor wants and writes the difference. The
	// contribution is remembered even when writing fails.
	Apply(ctx context.Context, contributor string, want map[K]V) error
	// Sweep ends the start-up phase: what no contributor wants is deleted, now
	// and from now on. Before it, Apply deletes only what the same contributor
	// had asked for earlier.
	Sweep(ctx context.Context) error
}

// Rule is an iptables rule in canonical form, exactly as iptables-save prints
// it after "-A CHAIN ".
type Rule string

// ChainPrefix begins the name of every iptables chain of ours, and of no other.
const ChainPrefix = "OVN-KUBE-"

// ChainKey names an iptables chain.
type ChainKey struct {
	Family topology.Family
	Table  string // "nat", "filter", "mangle"
	Name   string // "OVN-KUBE-..."
}

// Jump says how a chain is reached from a built-in one.
type Jump struct {
	From  string // "POSTROUTING"
	Match string // canonical match before "-j NAME"; empty for all packets
}

// Chain is a chain that the chain driver is to own: its whole content and the
// jumps to it. Jumps of one built-in chain are kept at its top in the order of
// Position.
type Chain struct {
	ChainKey
	Jumps    []Jump
	Position int
}

// Rules are the rules one contributor wants, by chain, in order.
type Rules map[ChainKey][]Rule

// ChainWriter writes whole iptables chains. A chain's content is the union of
// the contributions, ordered by contributor name, replaced atomically.
//
// Before Sweep rules that an earlier run left in a chain stay where they are.
type ChainWriter interface {
	// Apply replaces what contributor wants. A chain that is not declared is an
	// error and changes nothing. Unlike that of Writer it repairs nothing: where the
	// contribution is the same as before, and is written, it does nothing.
	Apply(ctx context.Context, contributor string, want Rules) error
	// Sweep ends the start-up phase, as in Writer.
	Sweep(ctx context.Context) error
}

// IPRule is an ip rule. Rules of our priorities and protocol number are ours.
type IPRule struct {
	Family   topology.Family
	Priority int
	Src      netip.Prefix // zero: from all
	Dst      netip.Prefix // zero: to all
	Protocol string       // "tcp", "udp", "sctp"; "": any
	SrcPort  uint16       // 0: any
	Mark     uint32       // 0: any
	Table    int          // 254 is the main table
}

// Route is a route of ours, told by its protocol number.
type Route struct {
	Dst   netip.Prefix // 0.0.0.0/0 or ::/0 for a default route
	Table int          // 0 and 254 are the main table
	Link  string       // interface name; "" where it drops
}

// Hop is how a Route goes on.
type Hop struct {
	Via   netip.Addr // zero: on link, which implies its scope
	Src   netip.Addr // preferred source; zero: the kernel's choice
	MTU   int        // bytes; 0: the link's
	Scope int        // IPv4 only: 0 universe, 253 link
	// OnLink: Via is a neighbour, whatever the routes say.
	OnLink bool
	// Drop discards what no other route of the table takes to this destination. Such a
	// route has no link, and stays when links go.
	Drop bool
}

// Address is an address on a host link.
type Address struct {
	Link   string
	Prefix netip.Prefix
}

// AddressUse is what an Address is for.
type AddressUse struct {
	// NotPreferred: the host answers for the address, but does not choose it as the
	// source of its own connections (RFC 4862, section 5.5.4).
	NotPreferred bool
}

// Flow is one OpenFlow flow as ovs-ofctl(8) takes it, without cookie, e.g.
// "table=0,priority=100,in_port=2,ip,actions=output:1".
type Flow string

// LearnedCookie marks flows that flows of ours learn, "ovnl" in ASCII: they come and go
// with what passes, and a FlowWriter leaves them alone.
const LearnedCookie = 0x6f766e6c

// FlowWriter owns the flows of one bridge. Before Sweep flows are only added or
// changed, and those deleted that the same contributor had asked for earlier;
// from Sweep on the whole bridge is replaced, in one bundle, by the union of the
// contributions, so that flows nobody wants are gone, whoever made them.
type FlowWriter interface {
	Apply(ctx context.Context, contributor string, flows []Flow) error
	// Change takes some flows from what a contributor has asked for and adds others. It
	// costs no more where there are many.
	Change(ctx context.Context, contributor string, remove, add []Flow) error
	Sweep(ctx context.Context) error
}

// Translation is a source translation: what comes from Source leaves as To.
type Translation struct {
	Source netip.Prefix
	To     netip.Addr
}

// Compare orders translations by source.
func (t Translation) Compare(o Translation) int {
	return cmp.Or(t.Source.Compare(o.Source), t.To.Compare(o.To))
}
