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

	mu            sync.Mutex
	synced        bool
	suppressed    []netip.Addr                       // the suppressed, as contributed
	flows         []host.Flow                        // as contributed
	seen          map[string][]v1.EgressIPStatusItem // of the EgressIPs in the last pass; nil where that failed
	node          topology.Node                      // as the last pass saw it
	held          map[netip.Addr]bool                // what was held then
	leaving       map[netip.Addr]time.Time           // no egress addresses any more, until when they are suppressed at least
	untranslated  map[netip.Addr]bool                // those of them that OVN does not translate to any more
	releasedUntil map[netip.Addr]time.Time           // not held any more, until when they may be seen here
	toForget      map[netip.Addr]bool                // connections with these are to be forgotten
}

func newARPSuppression(c *Controller) *arpSuppression {
	return &arpSuppression{c: c, passes: host.NewCoalescer[error](), held: map[netip.Addr]bool{},
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
	objects := g.c.objects()
	want, flows, same := g.plan(objects, node)
	if !same {
		// What fails may be written later: until it is known, the bridge was told nothing.
		g.mu.Lock()
		g.synced, g.seen = false, nil
		g.mu.Unlock()
		if err := g.c.deps.Flows.Apply(ctx, Contributor, flows); err != nil {
			return fmt.Errorf("gate egress addresses: %w", err)
		}
		klog.V(2).InfoS("Suppressed ARP and neighbor discovery for egress addresses", "addresses", len(want))
	}
	seen := make(map[string][]v1.EgressIPStatusItem, len(objects))
	for _, e := range objects {
		seen[e.Name] = e.Status.Items
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.synced, g.flows, g.seen, g.node = true, flows, seen, node
	return nil
}

// cover tells whether the last pass saw the addresses that an EgressIP gives to others
// now; e is nil where it is gone.
func (g *arpSuppression) cover(key string, e *v1.EgressIP, node topology.Node) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	items, ok := g.seen[key]
	if g.seen == nil || ok != (e != nil) || !reflect.DeepEqual(g.node, node) {
		return false
	}
	return e == nil || slices.EqualFunc(items, e.Status.Items, func(a, b v1.EgressIPStatusItem) bool { return a.EgressIP == b.EgressIP })
}

// plan returns the addresses to be suppressed, the flows, and whether the bridge was told
// the same before.
func (g *arpSuppression) plan(objects []*v1.EgressIP, node topology.Node) (want []netip.Addr, flows []host.Flow, same bool) {
	want = egressip.SuppressedAddrs(objects, node, g.c.holds)
	g.mu.Lock()
	defer g.mu.Unlock()
	want = g.linger(want, node)
	b := bridge.Bridge{MAC: node.Gateway.MAC, VLAN: g.c.deps.VLAN}
	for _, a := range want {
		flows = append(flows, bridge.SuppressARP(b, a)...)
		// What its EgressIP does not have any more may be another's at any moment.
		if _, going := g.releasedUntil[a]; !going || !g.c.moves(objects, a) {
			flows = append(flows, bridge.DropForeign(a))
		}
	}
	for _, a := range g.opened(node) {
		before, rest := g.c.previous.of(a, true)
		if rest > 0 {
			g.c.queue.EnqueueAfter(rest, suppressionKey)
		}
		flows = append(flows, bridge.DeliverToOVN(b, a, before.Gateway.MAC)...)
	}
	g.suppressed = want
	return want, flows, g.synced && slices.Equal(flows, g.flows)
}

// opened returns the addresses held on the primary network; g.mu is held, and those
// that are held are known from linger.
func (g *arpSuppression) opened(node topology.Node) []netip.Addr {
	var open []netip.Addr
	for a := range g.held {
		if egressip.OnPrimary(node, a) && !egressip.IsOwn(node, a) {
			open = append(open, a)
		}
	}
	slices.SortFunc(open, netip.Addr.Compare)
	return open
}

// linger adds to want what was suppressed or held until now and is not an egress address
// any more, for a while; g.mu is held.
func (g *arpSuppression) linger(want []netip.Addr, node topology.Node) []netip.Addr {
	now, held := time.Now(), g.c.allAnswering()
	over := func(a netip.Addr) bool {
		_, gated := slices.BinarySearchFunc(want, a, netip.Addr.Compare)
		return !held[a] && !gated && !egressip.IsOwn(node, a) && egressip.OnPrimary(node, a)
	}
	for _, a := range slices.AppendSeq(slices.Clone(g.suppressed), maps.Keys(g.held)) {
		if _, known := g.leaving[a]; !known && over(a) {
			g.leaving[a] = now.Add(2 * suppressionLinger)
		}
	}
	g.noteReleased(now, held)
	g.held = held
	var more []netip.Addr
	for a, until := range g.leaving {
		if over(a) && !g.untranslated[a] {
			more = append(more, a)
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
	want = append(want, more...)
	slices.SortFunc(want, netip.Addr.Compare)
	return want
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
