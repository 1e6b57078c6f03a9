package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	// Contributor is the name of the suppressed addresses on the external bridge, without which
	// the bridge is not complete.
	Contributor = egressip.Feature
	// suppressionKey is the key of a pass over the suppressed addresses alone; no EgressIP is called so.
	suppressionKey = ""
)

// suppressionLinger is how long what an address was used for may go on after this node has let
// go of it for another: the translations in the gateway router go when the master has taken note.
// Then connections with the address are forgotten, and what leaves with it is dropped.
// The suppressed addresses of an EgressIP that has ended stay for as long again.
var suppressionLinger = 10 * time.Second

// suppressionRetry is when it is looked again whether a suppression can end.
var suppressionRetry = 5 * time.Second

// arpSuppression are the addresses that the gateway router is kept from answering for.
type arpSuppression struct {
	c      *Controller
	passes *host.Coalescer[error]

	mu   sync.Mutex
	anew bool            // the next pass looks at all EgressIPs and writes all flows
	told bool            // the bridge was told all that the last pass has planned
	read bool            // it is known what an earlier run has left on the bridge
	keys map[string]bool // of the EgressIPs that the next pass looks at
	// users are the EgressIPs whose status has an address, as the last pass saw them, and
	// seen, by name, what they have.
	users         map[netip.Addr][]user
	seen          map[string]addresses
	treatments    map[netip.Addr]treatment // as contributed
	node          topology.Node            // as the last pass saw it
	held          map[netip.Addr]bool      // what was held then
	leaving       map[netip.Addr]time.Time // no egress addresses any more, until when they are suppressed at least
	untranslated  map[netip.Addr]bool      // those of them that OVN does not translate to any more
	releasedUntil map[netip.Addr]time.Time // not held any more, until when they may be seen here
	toForget      map[netip.Addr]bool      // connections with these are to be forgotten
}

// user is an EgressIP that has an address.
type user struct {
	name string
	uid  types.UID
}

// addresses are those that the status of an EgressIP has. One that was taken out of the spec is
// among these until its translations go.
type addresses struct {
	uid  types.UID
	list []netip.Addr
}

func addressesOf(e *v1.EgressIP) addresses {
	if e == nil {
		return addresses{}
	}
	found := addresses{uid: e.UID}
	for _, item := range e.Status.Items {
		if a, err := netip.ParseAddr(item.EgressIP); err == nil {
			found.list = append(found.list, a)
		}
	}
	return found
}

func (a addresses) equal(b addresses) bool {
	return slices.Equal(a.list, b.list) && (a.uid == b.uid || len(a.list) == 0)
}

// treatment is what the bridge does with an address: zero for nothing.
type treatment struct {
	suppressed bool
	dropped    bool   // what leaves with it, too; only of those that are suppressed
	held       bool   // it is this node's
	before     string // the MAC address of the node that had it until now
}

func (t treatment) flows(b bridge.Bridge, a netip.Addr) []host.Flow {
	var flows []host.Flow
	if t.suppressed {
		flows = append(flows, bridge.SuppressARP(a, t.dropped))
	}
	if t.held {
		flows = append(flows, bridge.DeliverToOVN(b, a, t.before)...)
	}
	return flows
}

func newARPSuppression(c *Controller) *arpSuppression {
	return &arpSuppression{c: c, passes: host.NewCoalescer[error](), anew: true, keys: map[string]bool{}, held: map[netip.Addr]bool{},
		users: map[netip.Addr][]user{}, seen: map[string]addresses{}, treatments: map[netip.Addr]treatment{},
		untranslated: map[netip.Addr]bool{},
		leaving:      map[netip.Addr]time.Time{}, releasedUntil: map[netip.Addr]time.Time{}, toForget: map[netip.Addr]bool{}}
}

// apply makes the bridge have the suppressed addresses there are to be now. Callers that waited
// share a pass.
func (g *arpSuppression) apply(ctx context.Context) error {
	failed, err := g.passes.Do(ctx, g.passes.Request(), g.pass)
	if err != nil {
		return err
	}
	return failed
}

func (g *arpSuppression) pass(ctx context.Context) error {
	node, err := g.c.self()
	if err != nil {
		return err
	}
	if err := g.recall(ctx); err != nil {
		return err
	}
	if err := g.tell(ctx, g.plan(node)); err != nil {
		// What fails may be written later: until it is known, the bridge was told nothing.
		g.mu.Lock()
		g.anew = true
		g.mu.Unlock()
		return fmt.Errorf("suppress egress addresses: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = true
	return nil
}

// recall takes over what an earlier run has left on the bridge, before that is replaced: what
// has ended meanwhile ends as if this run had known it.
func (g *arpSuppression) recall(ctx context.Context) error {
	g.mu.Lock()
	read := g.read
	g.mu.Unlock()
	if read { // passes come one after the other
		return nil
	}
	held, suppressed, err := g.c.deps.Left(ctx)
	if err != nil {
		return fmt.Errorf("read which egress addresses the external bridge knows: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range held {
		g.held[a] = true
	}
	for _, a := range suppressed {
		g.treatments[a] = treatment{suppressed: true}
	}
	g.read = true
	return nil
}

// changes are what the bridge is to be told.
type changes struct {
	all         bool // then add are all flows
	remove, add []host.Flow
}

func (g *arpSuppression) tell(ctx context.Context, c changes) error {
	switch {
	case c.all:
		if err := g.c.deps.Flows.Apply(ctx, Contributor, c.add); err != nil {
			return err
		}
		klog.V(2).InfoS("Suppressed ARP and neighbor discovery for egress addresses", "flows", len(c.add))
	case len(c.remove)+len(c.add) > 0:
		if err := g.c.deps.Flows.Change(ctx, Contributor, c.remove, c.add); err != nil {
			return err
		}
		klog.V(2).InfoS("Changed the suppressed egress addresses", "flowsAdded", len(c.add), "flowsRemoved", len(c.remove))
	}
	return nil
}

// cover reports whether the bridge was told of the addresses that an EgressIP has now; e is nil
// where it is gone. Otherwise the next pass looks at it.
func (g *arpSuppression) cover(key string, e *v1.EgressIP, node topology.Node) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.seen[key].equal(addressesOf(e)) {
		g.keys[key] = true
	}
	return g.told && !g.anew && !g.keys[key] && reflect.DeepEqual(g.node, node)
}

// look notes the addresses of an EgressIP, nil where it is gone, and returns those that it
// had and has; mu is held.
func (g *arpSuppression) look(key string, e *v1.EgressIP) []netip.Addr {
	before, after := g.seen[key], addressesOf(e)
	for _, a := range before.list {
		g.users[a] = slices.DeleteFunc(g.users[a], func(u user) bool { return u.name == key })
		if len(g.users[a]) == 0 {
			delete(g.users, a)
		}
	}
	for _, a := range after.list {
		g.users[a] = append(g.users[a], user{key, after.uid})
	}
	if g.seen[key] = after; len(after.list) == 0 {
		delete(g.seen, key)
	}
	return slices.Concat(before.list, after.list)
}

// lookAll notes the addresses of all EgressIPs; mu is held.
func (g *arpSuppression) lookAll() {
	clear(g.users)
	clear(g.seen)
	for _, e := range g.c.objects() {
		g.look(e.Name, e)
	}
}

// plan returns what is to be changed on the bridge. It looks at the addresses that may be
// otherwise than in the last pass, which is not all of them: there are as many as the
// cluster has.
func (g *arpSuppression) plan(node topology.Node) changes {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.anew || !reflect.DeepEqual(g.node, node)
	looked := map[netip.Addr]bool{}
	if all {
		g.lookAll()
		for a := range g.users {
			looked[a] = true
		}
		for a := range g.treatments {
			looked[a] = true
		}
	} else {
		for key := range g.keys {
			e, err := g.c.deps.EgressIPs.Lister().Get(key)
			if err != nil {
				e = nil // it is gone
			}
			for _, a := range g.look(key, e) {
				looked[a] = true
			}
		}
	}
	clear(g.keys)
	held := g.c.allAnswering()
	for _, some := range []map[netip.Addr]bool{held, g.held} {
		for a := range some {
			looked[a] = true
		}
	}
	for _, some := range []map[netip.Addr]time.Time{g.leaving, g.releasedUntil} {
		for a := range some {
			looked[a] = true
		}
	}
	lingering := g.linger(looked, held, node)
	b, c := bridge.Bridge{MAC: node.Gateway.MAC, VLAN: g.c.deps.VLAN}, changes{all: all}
	if all {
		c.add = bridge.Suppression(b)
	}
	for _, a := range slices.SortedFunc(maps.Keys(looked), netip.Addr.Compare) {
		have, want := g.treatments[a], g.treat(a, node, lingering[a])
		switch {
		case all:
			c.add = append(c.add, want.flows(b, a)...)
		case have != want:
			before, after := have.flows(b, a), want.flows(b, a)
			c.remove, c.add = append(c.remove, without(before, after)...), append(c.add, without(after, before)...)
		}
		if g.treatments[a] = want; want == (treatment{}) {
			delete(g.treatments, a)
		}
	}
	g.anew, g.told, g.node = false, false, node
	return c
}

// without returns those of flows that others are not among.
func without(flows, others []host.Flow) []host.Flow {
	return slices.DeleteFunc(slices.Clone(flows), func(f host.Flow) bool { return slices.Contains(others, f) })
}

// isSuppressed reports whether an EgressIP has an address that this node does not hold; mu is held.
func (g *arpSuppression) isSuppressed(a netip.Addr, held map[netip.Addr]bool, node topology.Node) bool {
	return len(g.users[a]) > 0 && !held[a] && egressip.Suppressible(node, a)
}

// treat decides what the bridge is to do with an address; mu is held.
func (g *arpSuppression) treat(a netip.Addr, node topology.Node, lingering bool) treatment {
	switch {
	case lingering || g.isSuppressed(a, g.held, node):
		// What its EgressIP does not have any more may be another's at any moment.
		_, going := g.releasedUntil[a]
		return treatment{suppressed: true, dropped: !going || !g.moves(a)}
	case g.held[a] && egressip.OnPrimary(node, a) && !egressip.IsOwn(node, a):
		before, rest := g.c.previous.of(a, true)
		if rest > 0 {
			g.c.queue.EnqueueAfter(rest, suppressionKey)
		}
		return treatment{held: true, before: before.Gateway.MAC}
	}
	return treatment{}
}

// moves reports whether the EgressIP that this node held an address for last has it still,
// which another node then is to take; mu is held.
func (g *arpSuppression) moves(a netip.Addr) bool {
	uid, known := g.c.lastHeldFor(a)
	if !known {
		return false
	}
	return slices.ContainsFunc(g.users[a], func(u user) bool { return u.uid == uid })
}

// linger returns the addresses that were suppressed or held until now and that no EgressIP
// has any more, which stay suppressed for a while; mu is held.
func (g *arpSuppression) linger(looked, held map[netip.Addr]bool, node topology.Node) map[netip.Addr]bool {
	now := time.Now()
	over := func(a netip.Addr) bool {
		return !held[a] && !g.isSuppressed(a, held, node) && !egressip.IsOwn(node, a) && egressip.OnPrimary(node, a)
	}
	for a := range looked {
		if _, known := g.leaving[a]; !known && (g.treatments[a].suppressed || g.held[a]) && over(a) {
			g.leaving[a] = now.Add(2 * suppressionLinger)
		}
	}
	g.noteReleased(now, held)
	g.held = held
	lingering := map[netip.Addr]bool{}
	for a, until := range g.leaving {
		if over(a) && !g.untranslated[a] {
			lingering[a] = true
			// Each time anew: of several moments the queue remembers the first.
			rest := until.Sub(now)
			if rest <= 0 {
				rest = suppressionRetry
			}
			g.c.queue.EnqueueAfter(rest, suppressionKey)
		} else {
			g.toForget[a] = !held[a]
			delete(g.leaving, a)
			delete(g.untranslated, a)
		}
	}
	return lingering
}

// end finds out which of the addresses whose suppressed addresses are due to end OVN does not translate
// to any more: it answers for the others. The master takes a translation out only when
// nothing leads there, which a chassis that hangs may delay for any time.
func (g *arpSuppression) end(ctx context.Context) {
	g.mu.Lock()
	now := time.Now()
	var due []netip.Addr
	for a, until := range g.leaving {
		if !now.Before(until) {
			due = append(due, a)
		}
	}
	g.mu.Unlock()
	if len(due) == 0 {
		return
	}
	there, err := g.c.deps.Translates(ctx, due)
	if err != nil {
		klog.ErrorS(err, "Cannot tell whether OVN still translates egress addresses, ARP suppression stays", "addresses", due)
		return
	}
	if len(there) > 0 {
		klog.InfoS("ARP suppression stays: OVN still translates the egress addresses", "addresses", there)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range due {
		if !slices.Contains(there, a) {
			g.untranslated[a] = true
		}
	}
}

// noteReleased notes which addresses are not held any more, and whose time here is over; g.mu
// is held.
func (g *arpSuppression) noteReleased(now time.Time, held map[netip.Addr]bool) {
	for a := range g.held {
		if _, known := g.releasedUntil[a]; !known && !held[a] {
			g.releasedUntil[a] = now.Add(suppressionLinger)
		}
	}
	for a, until := range g.releasedUntil {
		switch {
		case held[a]:
			delete(g.releasedUntil, a)
		case now.Before(until):
			g.c.queue.EnqueueAfter(until.Sub(now), suppressionKey)
		default:
			g.toForget[a] = true
			delete(g.releasedUntil, a)
			g.c.forgetHolder(a)
		}
	}
}

// forget deletes what is remembered of connections with addresses whose time here is
// over. It comes after a pass, which drops what they would send.
func (g *arpSuppression) forget(ctx context.Context) error {
	g.mu.Lock()
	due := slices.SortedFunc(maps.Keys(g.toForget), netip.Addr.Compare)
	due = slices.DeleteFunc(due, func(a netip.Addr) bool { return !g.toForget[a] || g.held[a] })
	clear(g.toForget)
	g.mu.Unlock()
	err := g.c.stale.forget(ctx, due)
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, a := range due {
			g.toForget[a] = true
		}
	}
	return err
}
