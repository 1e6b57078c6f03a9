package pod

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Errors of the Allocator. They are results to report, not errors to retry:
// the pod is tried again when an address of its node is released.
var (
	// ErrFull means that every address of the node's subnets is taken.
	ErrFull = errors.New("no free pod address")
	// ErrTaken means that an address belongs to another pod.
	ErrTaken = errors.New("address is taken")
	// ErrOutside means that an address is not one of the node's pod addresses.
	ErrOutside = errors.New("address is not a pod address of the node")
	// ErrTwice means that there is more than one address of a family.
	ErrTwice = errors.New("more than one address of a family")
	// ErrHeld means that a holder already has other addresses, which it keeps.
	ErrHeld = errors.New("pod has other addresses")
)

// Holder is one incarnation of a pod.
type Holder struct {
	Key string // "namespace/name"
	UID string
}

// Allocator tracks which holder has which pod address. It is safe for concurrent use.
type Allocator struct {
	mu       sync.Mutex
	nodes    map[string]*node
	reserved map[Holder]reservation
	byKey    map[string][]Holder
	// stranded are the holders of addresses that at some time were not in the subnets of their nodes, as when the node is
	// gone, or was before this process started. They keep them where another node has the subnet now: while such a pod exists,
	// egress features may steer the traffic of its addresses.
	stranded map[Holder]bool
}

// node is the state of a node's pod addresses.
type node struct {
	subnets []netip.Prefix
	pools   []*pool
	next    uint64 // first host number to try
	holders map[netip.Addr]Holder
	macs    map[string]Holder // MAC addresses that are not derived from the holder's addresses
	waiting map[string]bool   // keys of pods that found no address
}

// reservation is the state of a holder.
type reservation struct {
	node  string // "": none yet, see Strand
	addrs []netip.Prefix
	mac   string // "": derived from the addresses
}

// NewAllocator returns an empty allocator.
func NewAllocator() *Allocator {
	return &Allocator{nodes: map[string]*node{}, reserved: map[Holder]reservation{}, byKey: map[string][]Holder{}, stranded: map[Holder]bool{}}
}

// Claim is a previous assignment of addresses to a pod, from a trustworthy source:
// not from the pod's annotation.
type Claim struct {
	Holder
	Addrs   []netip.Prefix
	Running bool // the addresses are in use
	Created time.Time
}

// SetNode sets the subnets of a node and the previous assignments to its pods
// in one step, so that no claimed address can be assigned to another pod. If
// claims collide, running pods take precedence, then older ones. Addresses already held stay held
// if they are in the subnets. It returns the keys of pods that wait for an
// address and should be tried again.
func (a *Allocator) SetNode(name string, subnets []netip.Prefix, claims []Claim) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[name]
	if len(subnets) == 0 {
		delete(a.nodes, name)
		for who, h := range a.reserved {
			if h.node == name {
				a.strand(who, h)
			}
		}
		return n.takeWaiting()
	}
	if n == nil {
		n = &node{waiting: map[string]bool{}}
		a.nodes[name] = n
	}
	if !slices.Equal(n.subnets, subnets) {
		a.setSubnets(name, n, subnets)
	}
	claims = slices.SortedFunc(slices.Values(claims), func(x, y Claim) int {
		if x.Running != y.Running {
			if x.Running {
				return -1
			}
			return 1
		}
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Key, y.Key))
	})
	for _, c := range claims {
		if _, ok := a.reserved[c.Holder]; !ok && n.check(c.Holder, c.Addrs) == nil {
			a.record(c.Holder, name, c.Addrs)
		}
	}
	return n.takeWaiting()
}

// setSubnets sets the subnets of a node. Its holders keep what they have that is still valid there.
func (a *Allocator) setSubnets(name string, n *node, subnets []netip.Prefix) {
	n.reset(subnets)
	macs := map[Holder]string{}
	for who, h := range a.reserved {
		if h.node != name {
			continue
		}
		n.occupy(who, h.addrs)
		switch {
		case !n.holdsAny(who, h.addrs):
			a.strand(who, h)
		case h.mac != "":
			macs[who] = h.mac
		}
		h.mac = ""
		a.reserved[who] = h
	}
	for who := range a.stranded {
		n.occupy(who, a.reserved[who].addrs)
	}
	for who, mac := range macs { // in the new subnets they may belong to other holders
		_ = a.keepMAC(who, mac)
	}
}

// strand records that the addresses of a holder are not in the subnets of its node now.
func (a *Allocator) strand(who Holder, h reservation) {
	a.stranded[who] = true
	for _, n := range a.nodes {
		n.occupy(who, h.addrs)
	}
}

// Strand lets a holder without a reservation have addresses in whatever node's subnets they are, now or later, unless others
// have them there. As soon as its pod has an address of a node, that replaces them.
func (a *Allocator) Strand(who Holder, addrs []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.reserved[who]; ok {
		return
	}
	var h reservation
	for _, addr := range addrs {
		h.addrs = append(h.addrs, topology.HostPrefix(addr))
	}
	a.reserved[who] = h
	a.byKey[who.Key] = append(a.byKey[who.Key], who)
	a.strand(who, h)
}

// with returns the nodes in whose subnets the addresses of a holder are.
func (a *Allocator) with(who Holder, h reservation) []*node {
	if a.stranded[who] {
		return slices.DeleteFunc(slices.Collect(maps.Values(a.nodes)), func(n *node) bool { return !n.holdsAny(who, h.addrs) })
	}
	if n := a.nodes[h.node]; n != nil {
		return []*node{n}
	}
	return nil
}

// Subnets returns the subnets last set by SetNode, or nil if there are none.
func (a *Allocator) Subnets(name string) []netip.Prefix {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.nodes[name]; n != nil {
		return n.subnets
	}
	return nil
}

// Reserve reserves the addresses previously assigned to a pod. It succeeds if the holder
// already holds exactly these. A holder that holds other addresses on that node keeps them.
// The error wraps ErrTaken, ErrOutside, ErrTwice or ErrHeld; then nothing changes.
// If the addresses are not available, the pod is recorded as waiting.
func (a *Allocator) Reserve(who Holder, nodeName string, addrs []netip.Prefix) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[nodeName]
	if n == nil {
		return fmt.Errorf("%w: node %s", ErrOutside, nodeName)
	}
	if err := n.check(who, addrs); err != nil {
		n.waiting[who.Key] = true
		return err
	}
	h, ok := a.reserved[who]
	if ok && h.node == nodeName && n.holdsAny(who, h.addrs) {
		if !slices.Equal(h.addrs, addrs) {
			return fmt.Errorf("%w: %s", ErrHeld, h.addrs)
		}
		return nil
	}
	a.drop(who)
	a.record(who, nodeName, addrs)
	return nil
}

// Allocate assigns a holder one address of each subnet of the node, with the same
// host number if possible; the holder keeps addresses that it already has there, and with them
// its MAC address, if that is possible: a running pod's interface has it.
// If it returns ErrFull, the pod is recorded as waiting, and the addresses are those that it has already, if any.
func (a *Allocator) Allocate(who Holder, nodeName string) ([]netip.Prefix, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[nodeName]
	if n == nil {
		return nil, fmt.Errorf("%w: node %s", ErrOutside, nodeName)
	}
	h, ok := a.reserved[who]
	if ok && h.node == nodeName && n.complete(who, h.addrs) {
		return h.addrs, nil
	}
	has := n.of(who, h.addrs)
	addrs, ok := n.pick(has)
	if !ok {
		n.waiting[who.Key] = true
		return has, fmt.Errorf("%w: node %s", ErrFull, nodeName)
	}
	a.drop(who)
	a.record(who, nodeName, addrs)
	if len(has) > 0 {
		if mac := cmp.Or(h.mac, macOf(h.addrs)); mac != macOf(addrs) {
			_ = a.keepMAC(who, mac) // else it is derived from the addresses
		}
	}
	return addrs, nil
}

// KeepMAC lets a holder keep a MAC address other than the one that it would get, if
// no other pod on the node has it or can get it. Without IPv4, that is any: other
// implementations may derive it differently. With IPv4, it is the one derived from the holder's IPv6 address, which
// it has had since its node had no IPv4.
func (a *Allocator) KeepMAC(who Holder, mac string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keepMAC(who, mac)
}

func (a *Allocator) keepMAC(who Holder, mac string) error {
	h, ok := a.reserved[who]
	n := a.nodes[h.node]
	if !ok || n == nil {
		return fmt.Errorf("%w: %s has no address", ErrOutside, who.Key)
	}
	mac = strings.ToLower(mac)
	if other, taken := n.macs[mac]; taken && other != who || !n.mayHaveMAC(mac, h.addrs) {
		return fmt.Errorf("%w: MAC address %s", ErrTaken, mac)
	}
	h.mac = mac
	a.reserved[who] = h
	n.occupyMAC(who, mac)
	return nil
}

// MAC returns the MAC address that a holder keeps, or "" if it is derived from its
// addresses.
func (a *Allocator) MAC(who Holder) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reserved[who].mac
}

// IsReserved reports whether a holder has, or had, an address of a node, not only those of Strand.
func (a *Allocator) IsReserved(who Holder) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reserved[who].node != ""
}

// Addrs returns the addresses of a holder.
func (a *Allocator) Addrs(who Holder) []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	var addrs []netip.Addr
	for _, p := range a.reserved[who].addrs {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// Others returns the holders of a pod's other incarnations: all with the same key
// but another UID.
func (a *Allocator) Others(who Holder) []Holder {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Holder
	for _, h := range a.byKey[who.Key] {
		if h != who {
			out = append(out, h)
		}
	}
	return out
}

// Release releases everything that a holder has. It returns the keys of pods that should be
// tried again.
func (a *Allocator) Release(who Holder) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	h, ok := a.reserved[who]
	if !ok {
		return nil
	}
	var keys []string
	for _, n := range a.with(who, h) {
		keys = append(keys, n.takeWaiting()...)
	}
	a.drop(who)
	return keys
}

func (a *Allocator) record(who Holder, nodeName string, addrs []netip.Prefix) {
	a.reserved[who] = reservation{node: nodeName, addrs: slices.Clone(addrs)}
	a.byKey[who.Key] = append(a.byKey[who.Key], who)
	n := a.nodes[nodeName]
	n.occupy(who, addrs)
	delete(n.waiting, who.Key)
}

func (a *Allocator) drop(who Holder) {
	h, ok := a.reserved[who]
	if !ok {
		return
	}
	delete(a.reserved, who)
	rest := slices.DeleteFunc(a.byKey[who.Key], func(o Holder) bool { return o == who })
	if a.byKey[who.Key] = rest; len(rest) == 0 {
		delete(a.byKey, who.Key)
	}
	for _, n := range a.with(who, h) {
		n.vacate(who, h.addrs)
		n.vacateMAC(who, h.mac)
	}
	delete(a.stranded, who)
}

// reset sets the subnets of the node and clears all holders.
func (n *node) reset(subnets []netip.Prefix) {
	n.subnets, n.pools = slices.Clone(subnets), nil
	for _, s := range subnets {
		n.pools = append(n.pools, newPool(s))
	}
	n.next, n.holders, n.macs = firstPod, map[netip.Addr]Holder{}, map[string]Holder{}
}

// check returns an error if who may not have addrs.
func (n *node) check(who Holder, addrs []netip.Prefix) error {
	if len(addrs) == 0 {
		return fmt.Errorf("%w: none is given", ErrOutside)
	}
	seen := map[*pool]bool{}
	for _, p := range addrs {
		pool, _, ok := n.find(p)
		if !ok {
			return fmt.Errorf("%w: %s is not in %s", ErrOutside, p, n.subnets)
		}
		if seen[pool] {
			return fmt.Errorf("%w: %s", ErrTwice, addrs)
		}
		seen[pool] = true
		if other, taken := n.holders[p.Addr()]; taken && other != who {
			return fmt.Errorf("%w: %s belongs to %s", ErrTaken, p.Addr(), other.Key)
		}
	}
	if other, taken := n.macs[macOf(addrs)]; taken && other != who {
		return fmt.Errorf("%w: the MAC address of %s belongs to %s", ErrTaken, addrs, other.Key)
	}
	return nil
}

// find returns the pool of an address, and its host number; false if pods of the node cannot have it. A single address, see
// Strand, is of any subnet.
func (n *node) find(p netip.Prefix) (*pool, uint64, bool) {
	for _, pool := range n.pools {
		if number, ok := pool.number(p.Addr()); ok && (p.Bits() == pool.subnet.Bits() || p.IsSingleIP()) {
			return pool, number, true
		}
	}
	return nil, 0, false
}

// of returns the addresses in addrs that who occupies, with the lengths of the node's subnets.
func (n *node) of(who Holder, addrs []netip.Prefix) (has []netip.Prefix) {
	for _, p := range addrs {
		if n.holders[p.Addr()] != who {
			continue
		}
		if pool, _, ok := n.find(p); ok {
			has = append(has, netip.PrefixFrom(p.Addr(), pool.subnet.Bits()))
		}
	}
	return has
}

// holdsAny reports whether who occupies any of addrs.
func (n *node) holdsAny(who Holder, addrs []netip.Prefix) bool { return len(n.of(who, addrs)) > 0 }

// complete reports whether who holds addrs and they include one address of each pool.
func (n *node) complete(who Holder, addrs []netip.Prefix) bool {
	return len(addrs) == len(n.pools) && len(n.of(who, addrs)) == len(addrs)
}

// occupy marks addresses as taken by who and advances next past them; addresses outside
// the subnets, or taken by others, are skipped.
func (n *node) occupy(who Holder, addrs []netip.Prefix) {
	for _, p := range addrs {
		pool, number, ok := n.find(p)
		if _, taken := n.holders[p.Addr()]; !ok || taken {
			continue
		}
		pool.used.set(number)
		n.holders[p.Addr()] = who
		n.next = max(n.next, number+1)
	}
}

func (n *node) vacate(who Holder, addrs []netip.Prefix) {
	for _, p := range addrs {
		if n.holders[p.Addr()] != who {
			continue
		}
		delete(n.holders, p.Addr())
		if pool, number, ok := n.find(p); ok {
			pool.used.clear(number)
		}
	}
}

// pick returns an address of each pool: those in have, and free ones. It
// takes the next host number that is free in all pools, or else the next free one of
// each.
func (n *node) pick(have []netip.Prefix) ([]netip.Prefix, bool) {
	used := make([]bitmap, 0, len(n.pools))
	end := uint64(maxHosts)
	for _, p := range n.pools {
		used = append(used, p.used)
		end = min(end, p.end)
	}
	addrs := make([]netip.Prefix, 0, len(n.pools))
	if len(have) == 0 {
		if number, ok := n.around(end, used...); ok {
			for _, p := range n.pools {
				addrs = append(addrs, p.prefix(number))
			}
			n.next = number + 1
			return addrs, true
		}
	}
	for _, p := range n.pools {
		if i := slices.IndexFunc(have, func(a netip.Prefix) bool { return p.subnet.Contains(a.Addr()) }); i >= 0 {
			addrs = append(addrs, have[i])
			continue
		}
		number, ok := p.like(have)
		if !ok {
			number, ok = n.around(p.end, p.used)
		}
		if !ok {
			return nil, false
		}
		addrs = append(addrs, p.prefix(number))
	}
	return addrs, true
}

// around searches from n.next to the end and then from the start.
func (n *node) around(end uint64, used ...bitmap) (uint64, bool) {
	if number, ok := firstFree(n.next, end, used...); ok {
		return number, true
	}
	return firstFree(firstPod, min(n.next, end), used...)
}

// takeWaiting returns the keys of the waiting pods and clears them.
func (n *node) takeWaiting() []string {
	if n == nil {
		return nil
	}
	keys := slices.Sorted(maps.Keys(n.waiting))
	clear(n.waiting)
	return keys
}
