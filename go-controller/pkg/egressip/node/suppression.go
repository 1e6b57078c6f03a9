package node

import (
	"context"
	"errors"
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
	// Contributor is the name of the suppressed addresses' contribution to the external bridge, without
	// which the bridge is not complete.
	Contributor = egressip.Feature
	// suppressionKey is the key of a pass over the suppressed addresses only; no EgressIP has this name.
	suppressionKey = ""
)

// suppressionLinger is how long traffic may continue to use an address after this node has
// released it to another one: the master removes the translations in the gateway router with a delay.
// Afterwards, connections with the address are forgotten, and packets from it are dropped.
// The addresses of a deleted EgressIP stay suppressed for twice as long.
var suppressionLinger = 10 * time.Second

// suppressionRetry is the interval for checking again whether a suppression can end.
var suppressionRetry = 5 * time.Second

// arpSuppression manages the addresses for which the gateway router must not answer.
type arpSuppression struct {
	c      *Controller
	passes *host.Coalescer[error]
	settle *host.Coalescer[error]

	mu      sync.Mutex
	full    bool            // the next pass considers all EgressIPs and writes all flows
	written bool            // the flows planned by the last pass were written
	read    bool            // the flows left by an earlier run were read
	keys    map[string]bool // EgressIPs that the next pass considers
	// users are the EgressIPs whose status has an address, as of the last pass; seen
	// are their addresses, by name.
	users         map[netip.Addr][]user
	seen          map[string]addresses
	treatments    map[netip.Addr]treatment // as contributed
	node          topology.Node            // as of the last pass
	held          map[netip.Addr]bool      // as of the last pass
	leaving       map[netip.Addr]time.Time // former egress addresses, with the earliest end of their suppression
	untranslated  map[netip.Addr]bool      // those in leaving to which OVN no longer translates
	releasedUntil map[netip.Addr]time.Time // released addresses, and until when they may still be in use here
	toForget      map[netip.Addr]bool      // addresses whose connections are to be forgotten
	// releases counts the passes in which this node stopped answering for addresses; bridged is its value when the
	// bridge got all their flows, and settled the one for which no packet uses former flows any more.
	releases, bridged, settled uint64
}

// user is an EgressIP that has an address.
type user struct {
	name string
	uid  types.UID
}

// addresses are the addresses in the status of an EgressIP. An address removed from the spec stays
// among these until its translations are removed.
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

// treatment is what the bridge does with an address; the zero value means nothing.
type treatment struct {
	suppressed bool
	dropped    bool   // packets from it are dropped, too; only if suppressed
	held       bool   // this node holds it
	before     string // the MAC address of the node that held it before
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
	return &arpSuppression{c: c, passes: host.NewCoalescer[error](), settle: host.NewCoalescer[error](), full: true, keys: map[string]bool{}, held: map[netip.Addr]bool{},
		users: map[netip.Addr][]user{}, seen: map[string]addresses{}, treatments: map[netip.Addr]treatment{},
		untranslated: map[netip.Addr]bool{},
		leaving:      map[netip.Addr]time.Time{}, releasedUntil: map[netip.Addr]time.Time{}, toForget: map[netip.Addr]bool{}}
}

// apply applies the current suppressed addresses to the bridge. Callers that waited
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
	if err := g.readLeft(ctx); err != nil {
		return err
	}
	c, releases := g.plan(node)
	if err := g.write(ctx, c); err != nil {
		// A failed write may still take effect later: the bridge counts as not written until a pass succeeds.
		g.mu.Lock()
		g.full = true
		g.mu.Unlock()
		return fmt.Errorf("suppress egress addresses: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written, g.bridged = true, releases
	return nil
}

// released returns an error if this node may still answer for an address that it has released: another
// node takes the address as soon as this one has acknowledged that. As long as the bridge does not have all its
// flows, it may keep those of an earlier run, and there is nothing to wait for.
func (g *arpSuppression) released(ctx context.Context) error {
	g.mu.Lock()
	releases, settled := g.releases, g.settled
	g.mu.Unlock()
	if settled >= releases {
		return nil
	}
	if err := g.apply(ctx); err != nil {
		return err
	}
	if !g.c.deps.Flows.Synced() {
		return errors.New("the external bridge does not have all its flows yet")
	}
	failed, err := g.settle.Do(ctx, g.settle.Request(), func(ctx context.Context) error {
		g.mu.Lock()
		bridged := g.bridged
		g.mu.Unlock()
		if err := g.c.deps.Flows.Settle(ctx); err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.settled = bridged
		return nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.settled < releases {
		return errors.New("the external bridge does not have their flows yet")
	}
	return nil
}

// readLeft reads the flows that an earlier run left on the bridge, before they are replaced: addresses
// released meanwhile are treated as if this run had held them.
func (g *arpSuppression) readLeft(ctx context.Context) error {
	g.mu.Lock()
	read := g.read
	g.mu.Unlock()
	if read { // passes are sequential
		return nil
	}
	held, suppressed, err := g.c.deps.Left(ctx)
	if err != nil {
		return fmt.Errorf("read which egress addresses the external bridge knows: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(held)+len(suppressed) > 0 {
		g.releases++ // that run may have ended before it waited
	}
	for _, a := range held {
		g.held[a] = true
	}
	for _, a := range suppressed {
		g.treatments[a] = treatment{suppressed: true}
	}
	g.read = true
	return nil
}

// changes are the changes to the bridge's flows.
type changes struct {
	all         bool // add contains all flows
	remove, add []host.Flow
}

func (g *arpSuppression) write(ctx context.Context, c changes) error {
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

// cover reports whether the bridge has the current addresses of an EgressIP applied; e is nil
// if it was deleted. Otherwise the next pass considers it.
func (g *arpSuppression) cover(key string, e *v1.EgressIP, node topology.Node) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.seen[key].equal(addressesOf(e)) {
		g.keys[key] = true
	}
	return g.written && !g.full && !g.keys[key] && reflect.DeepEqual(g.node, node)
}

// look records the addresses of an EgressIP, nil if it was deleted, and returns its previous and
// current addresses; mu is held.
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

// lookAll records the addresses of all EgressIPs; mu is held.
func (g *arpSuppression) lookAll() {
	clear(g.users)
	clear(g.seen)
	for _, e := range g.c.objects() {
		g.look(e.Name, e)
	}
}

// plan returns the changes to the bridge, and the value of releases with them. It only considers addresses that may have changed
// since the last pass, and not all of them: there are as many as the
// cluster has.
func (g *arpSuppression) plan(node topology.Node) (changes, uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.full || !reflect.DeepEqual(g.node, node)
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
				e = nil // it was deleted
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
	if slices.ContainsFunc(slices.Collect(maps.Keys(g.held)), func(a netip.Addr) bool { return !held[a] && egressip.OnPrimary(node, a) }) {
		g.releases++
	}
	lingering := g.linger(looked, held, node)
	b, c := bridge.Bridge{MAC: node.Gateway.MAC, VLAN: g.c.deps.VLAN}, changes{all: all}
	if all {
		c.add = bridge.Suppression(b)
	}
	for _, a := range slices.SortedFunc(maps.Keys(looked), netip.Addr.Compare) {
		have, want := g.treatments[a], g.treatmentOf(a, node, lingering[a])
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
	g.full, g.written, g.node = false, false, node
	return c, g.releases
}

// without returns the flows that are not in others.
func without(flows, others []host.Flow) []host.Flow {
	return slices.DeleteFunc(slices.Clone(flows), func(f host.Flow) bool { return slices.Contains(others, f) })
}

// isSuppressed reports whether an EgressIP has an address that this node does not hold; mu is held.
func (g *arpSuppression) isSuppressed(a netip.Addr, held map[netip.Addr]bool, node topology.Node) bool {
	return len(g.users[a]) > 0 && !held[a] && egressip.Suppressible(node, a)
}

// treatmentOf decides the treatment of an address by the bridge; mu is held.
func (g *arpSuppression) treatmentOf(a netip.Addr, node topology.Node, lingering bool) treatment {
	switch {
	case lingering || g.isSuppressed(a, g.held, node):
		// An address that its EgressIP no longer has may be assigned to another one at any moment.
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

// moves reports whether the EgressIP for which this node last held an address still has it,
// so that another node is to take it; mu is held.
func (g *arpSuppression) moves(a netip.Addr) bool {
	uid, known := g.c.lastHeldFor(a)
	if !known {
		return false
	}
	return slices.ContainsFunc(g.users[a], func(u user) bool { return u.uid == uid })
}

// linger returns the addresses that were suppressed or held until now but that no EgressIP
// has any more; they stay suppressed for a while; mu is held.
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
			// Enqueued on each pass, since the queue keeps only the earliest of several times.
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

// end finds the addresses whose suppression is due to end and to which OVN no longer translates;
// OVN would answer for the others. The master removes a translation only when
// no policy leads there, which a hanging chassis may delay indefinitely.
func (g *arpSuppression) end() {
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
	there, err := g.c.translated.to(due)
	if err != nil {
		klog.InfoS("ARP suppression stays: it is not known whether OVN still translates the egress addresses", "addresses", due, "reason", err.Error())
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

// noteReleased records which addresses are no longer held, and which released addresses have expired; g.mu
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

// forget deletes the connection tracking entries of released addresses that have
// expired. It runs after a pass, which installs the flows that drop their packets.
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
