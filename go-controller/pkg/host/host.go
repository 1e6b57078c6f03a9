package host

import (
	"cmp"
	"context"
	"net/netip"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Kernel reads and writes one kind of kernel object. List returns only the objects that we own.
// Adding an object that exists with the same value and deleting one that is gone are not errors. To
// replace a value, Set deletes and adds, unless the Kernel is also a Replacer. Keys are printed
// with fmt to order writes.
type Kernel[K comparable, V any] interface {
	List(context.Context) (map[K]V, error)
	Add(context.Context, K, V) error
	Delete(context.Context, K, V) error
}

// Replacer is a Kernel that can change an object without it being missing for a moment.
type Replacer[K comparable, V any] interface {
	Replace(ctx context.Context, key K, old, value V) error
}

// Canonical is a Kernel in which some keys can be written in several ways. Set compares the form
// that it returns, which is the one that List uses.
type Canonical[K comparable] interface {
	Canonical(K) K
}

// Reducer is a Kernel in which some keys only have an effect together with others. Reduce deletes
// the ones without effect from the union of what is wanted.
type Reducer[K comparable, V any] interface {
	Reduce(union map[K]V)
}

// Overlapper is a Kernel whose objects may exist beside the ones that they replace under another key.
// Set adds such objects before it deletes others, so that packets never find neither of them.
type Overlapper interface {
	MayOverlap() bool
}

// Exclusive is a Kernel in which an older object keeps a newer one with another key from taking effect if Match
// returns the same for both. What is wanted replaces such objects even before Sweep: if an earlier run left one, the
// wanted object would do nothing until then.
type Exclusive[K comparable] interface {
	Match(K) K
}

// Protocol marks our ip rules and routes (RTA_PROTOCOL, FRA_PROTOCOL): 79, the letter O, which no
// routing daemon uses. "ip route show proto 79" shows them.
const Protocol = 79

// Writer is the interface of Set that features use.
type Writer[K comparable, V any] interface {
	// Apply replaces what contributor wants and writes the difference. The contribution is
	// remembered even if writing fails.
	Apply(ctx context.Context, contributor string, want map[K]V) error
	// Sweep ends the startup phase: from now on everything that no contributor wants is deleted.
	// Before that, Apply only deletes what the same contributor had asked for earlier.
	Sweep(ctx context.Context) error
}

// Rule is an iptables rule in canonical form, exactly as iptables-save prints
// it after "-A CHAIN ".
type Rule string

// ChainPrefix is the prefix of the names of all our iptables chains, and of no others.
const ChainPrefix = "OVN-KUBE-"

// ChainKey names an iptables chain.
type ChainKey struct {
	Family topology.Family
	Table  string // "nat", "filter", "mangle"
	Name   string // "OVN-KUBE-..."
}

// Jump describes how a chain is reached from a built-in one.
type Jump struct {
	From  string // "POSTROUTING"
	Match string // canonical match before "-j NAME"; empty for all packets
}

// Chain is a chain that the chain driver owns: its whole content and the jumps to it. The jumps are
// kept at the top of their built-in chain in the order of Position.
type Chain struct {
	ChainKey
	Jumps    []Jump
	Position int
}

// Rules are the rules one contributor wants, by chain, in order.
type Rules map[ChainKey][]Rule

// ChainWriter writes whole iptables chains. A chain's content is the union of the contributions,
// ordered by contributor name, and is replaced atomically.
//
// Before Sweep, rules that an earlier run left in a chain stay where they are.
type ChainWriter interface {
	// Apply replaces what contributor wants. Rules for an undeclared chain are an error and change
	// nothing. Unlike Writer.Apply it repairs nothing: if the contribution has not changed and is
	// already written, it does nothing.
	Apply(ctx context.Context, contributor string, want Rules) error
	// Sweep ends the start-up phase, as in Writer.
	Sweep(ctx context.Context) error
}

// IPRule is an ip rule. We own the rules with our priorities and protocol number.
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

// RoutingTable is a table of routes.
type RoutingTable struct {
	Number int
	VRF    bool // it belongs to a VRF device
	// Without is the family in which it has no route; zero: it has routes of both.
	Without topology.Family
}

// Route is a route of ours, identified by its protocol number.
type Route struct {
	Dst   netip.Prefix // 0.0.0.0/0 or ::/0 for a default route
	Table int          // 0 and 254 are the main table
	Link  string       // interface name; "" for a route that drops
}

// Hop is the next hop of a Route.
type Hop struct {
	Via   netip.Addr // zero: no gateway, which implies scope link
	Src   netip.Addr // preferred source; zero: the kernel's choice
	MTU   int        // bytes; 0: the link's
	Scope int        // IPv4 only: 0 universe, 253 link
	// OnLink: treat Via as a neighbour, whatever the routes say.
	OnLink bool
	// Drop discards packets to this destination that no other route of the table takes. Such a
	// route has no link, and stays when links go away.
	Drop bool
}

// Address is an address on a host link.
type Address struct {
	Link   string
	Prefix netip.Prefix
}

// AddressUse describes how an Address is used.
type AddressUse struct {
	// NotPreferred: the host answers for the address, but does not choose it as the
	// source of its own connections (RFC 4862, section 5.5.4).
	NotPreferred bool
}

// Flow is one OpenFlow flow as ovs-ofctl(8) takes it, without a cookie, e.g.
// "table=0,priority=100,in_port=2,ip,actions=output:1".
type Flow string

// Match returns the part of a flow before its actions, which identifies it.
func (f Flow) Match() string {
	m, _, _ := strings.Cut(string(f), "actions=")
	return strings.TrimRight(m, ", ")
}

// FlowLevel is all flows of one priority in one table of a bridge.
type FlowLevel struct{ Table, Priority int }

// LearnedCookie marks flows that our flows learn, "ovnl" in ASCII: they come and go with traffic,
// and a FlowWriter leaves them alone.
const LearnedCookie = 0x6f766e6c

// FlowWriter owns the flows of one bridge. Before Sweep it only adds and changes flows, and deletes
// those that the same contributor had asked for earlier. From Sweep on it replaces the flows of the
// whole bridge, in one bundle, with the union of the contributions, so that flows that no
// contributor wants disappear, whoever added them.
type FlowWriter interface {
	Apply(ctx context.Context, contributor string, flows []Flow) error
	// Change removes some flows from what a contributor has asked for and adds others. Its cost
	// does not depend on how many there are.
	Change(ctx context.Context, contributor string, remove, add []Flow) error
	Sweep(ctx context.Context) error
}

// Translation is a source translation: packets from Source leave with the address To.
type Translation struct {
	Source netip.Prefix
	To     netip.Addr
}

// Compare orders translations by source.
func (t Translation) Compare(o Translation) int {
	return cmp.Or(t.Source.Compare(o.Source), t.To.Compare(o.To))
}
