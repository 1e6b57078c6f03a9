package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// linkSettleTime is how long changes of links and routes are collected before they are
// processed.
const linkSettleTime = 50 * time.Millisecond

// Kernel is the host's networking state for addresses on secondary networks.
type Kernel struct {
	Addrs   Addresses
	Routes  host.Writer[host.Route, host.Hop]
	IPRules host.Writer[host.IPRule, struct{}]
	// Rules returns all ip rules of ours that the host has, whoever contributed them.
	Rules    func(ctx context.Context) (map[host.IPRule]struct{}, error)
	Settings host.Writer[string, string]
	Chains   host.ChainWriter
	// Networks returns the links that are up.
	Networks func() ([]host.Network, error)
	// Watch calls changed after each change of a link, an address or a route,
	// until ctx ends.
	Watch func(ctx context.Context, changed func()) error
	// Flush deletes the connections whose translation is stale, and the bridge's
	// connection tracking entries for addresses that are no longer assigned here.
	Flush func(ctx context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error
}

// Addresses writes addresses on links.
type Addresses interface {
	host.Writer[host.Address, host.AddressUse]
	// Drop deletes the selected addresses that no contributor wants, even before Sweep.
	Drop(ctx context.Context, contributor string, which func(host.Address) bool) error
}

// linkState is the target state for the secondary addresses of an EgressIP.
type linkState struct {
	host     egressip.HostState
	links    map[netip.Addr]string
	unlinked map[netip.Addr]bool
	record   map[netip.Addr]bool
	digest   string
	problem  string
	// awaiting are the addresses that this node is prepared to take from others, sorted.
	awaiting []netip.Addr
	gated    bool // the bridge has all suppressed addresses applied
}

// assignLinks plans the secondary addresses of an assignment, and of those that are
// departing. The returned map contains the addresses that this node holds from now on, which
// never include those without a link.
func (c *Controller) assignLinks(
	ctx context.Context, key string, assignment, departing egressip.NodeAssignment, may func(netip.Addr) bool,
) (linkState, map[netip.Addr]bool, error) {
	s := linkState{host: egressip.HostPlan(nil, nil, nil), links: map[netip.Addr]string{}, unlinked: map[netip.Addr]bool{}, record: map[netip.Addr]bool{}}
	held := map[netip.Addr]bool{}
	if len(assignment.Secondary)+len(departing.Secondary) == 0 {
		return s, held, nil
	}
	if err := c.pods.need(ctx); err != nil {
		return s, nil, err
	}
	networks, err := c.networks()
	if err != nil {
		return s, nil, err
	}
	found, problem := egressip.AssignLinks(assignment, networks, c.deps.Record.Has)
	for i, f := range found {
		if !f.Linked() {
			s.unlinked[f.Addr] = true
			continue
		}
		s.links[f.Addr], s.record[f.Addr] = f.Link.Link, true
		if may(f.Addr) {
			held[f.Addr] = true
		}
		before, rest := c.previous.of(f.Addr, held[f.Addr])
		if rest > 0 {
			c.queue.EnqueueAfter(rest, key)
		}
		found[i].Before = before.HostAddr(assignment.Networks[f.Addr])
	}
	// Pods of a family leave with its first address, so held addresses come first.
	slices.SortStableFunc(found, func(a, b egressip.LinkAssignment) int {
		switch {
		case held[a.Addr] == held[b.Addr]:
			return 0
		case held[a.Addr]:
			return -1
		}
		return 1
	})
	gone, _ := egressip.AssignLinks(departing, networks, c.deps.Record.Has)
	pods := c.pods.members.Addrs(key)
	s.host = egressip.HostPlan(append(found, gone...), func(a netip.Addr) bool { return held[a] }, pods)
	s.problem = problem
	if problem == "" {
		s.digest = egressip.Digest(assignment.Secondary, pods)
	}
	return s, held, nil
}

// leave removes addresses from the host that are no longer held; enter removes the rest of
// their state.
func (c *Controller) leave(ctx context.Context, key string, before state, next linkState) error {
	stay, fewer := map[host.Address]host.AddressUse{}, false
	for a := range before.host.Addrs {
		if use, still := next.host.Addrs[a]; still {
			stay[a] = use
		} else {
			fewer = true
		}
	}
	if !fewer {
		return nil
	}
	if err := c.deps.Kernel.Addrs.Apply(ctx, egressip.Contributor(key), stay); err != nil {
		return fmt.Errorf("take the addresses of EgressIP %s off the host: %w", key, err)
	}
	return nil
}

// dropLeft removes addresses from the host that this node no longer has for an EgressIP, but that this run may never
// have added: an earlier run left them.
func (c *Controller) dropLeft(ctx context.Context, key string, addrs []netip.Addr) error {
	left := slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !c.deps.Record.Has(a) })
	if len(left) == 0 {
		return nil
	}
	err := c.deps.Kernel.Addrs.Drop(ctx, egressip.Contributor(key), func(a host.Address) bool { return slices.Contains(left, a.Prefix.Addr()) })
	if err != nil {
		return fmt.Errorf("take addresses of EgressIP %s that an earlier run left off the host: %w", key, err)
	}
	return nil
}

// enter programs the target state of an EgressIP on the host: first the state that traffic
// needs, and last the addresses, which attract it. What ip rules need is in place before they route pods there,
// and stays until none does: otherwise pods would leave in between with an address of the host.
func (c *Controller) enter(ctx context.Context, key string, before state, next linkState) error {
	if before.host.Empty() && next.host.Empty() && !before.incomplete {
		return nil
	}
	c.mu.Lock()
	touched := c.touched[key]
	delete(c.touched, key)
	c.mu.Unlock()
	if before.known && !before.incomplete && !touched && before.host.Equal(next.host) {
		return nil
	}
	k, contributor := c.deps.Kernel, egressip.Contributor(key)
	if err := c.deps.Record.Set(ctx, key, next.record, true); err != nil {
		return err
	}
	if err := c.holdBack(ctx, key, before.host, next.host); err != nil {
		return err
	}
	// Routes of the former state may be impossible to write: the kernel removed those of a link that is down.
	// Routes of the next state are written again below, where errors count.
	routes, rules := both(next.host, before.host)
	if err := k.Routes.Apply(ctx, contributor, routes); err != nil {
		klog.V(2).InfoS("Cannot write all former and next routes", "egressIP", key, "err", err)
	}
	if err := k.Chains.Apply(ctx, contributor, rules); err != nil {
		return fmt.Errorf("program EgressIP %s: %w", key, err)
	}
	err := errors.Join(
		k.Settings.Apply(ctx, contributor, next.host.Settings),
		k.IPRules.Apply(ctx, contributor, next.host.IPRules),
	)
	if err == nil {
		err = errors.Join(
			k.Chains.Apply(ctx, contributor, next.host.Rules),
			k.Routes.Apply(ctx, contributor, next.host.Routes),
		)
	}
	c.forwardReleased(ctx, key, before.host.HandOn, next.host.HandOn)
	if err == nil {
		err = k.Addrs.Apply(ctx, contributor, next.host.Addrs)
	}
	if err != nil {
		return fmt.Errorf("program EgressIP %s: %w", key, err)
	}
	routed := next.host.Routed()
	if err := c.changing.release(ctx, func(pod netip.Addr) bool { return routed[pod] }); err != nil {
		return err
	}
	if err := c.flush(ctx, before.host.Translations, next.host.Translations); err != nil {
		return err
	}
	if err := c.dropLeft(ctx, key, c.deps.Record.Released(key, next.record)); err != nil {
		return err
	}
	return c.deps.Record.Set(ctx, key, next.record, false)
}

// both returns the routes and rules of two states. Those of the first one take precedence.
func both(now, before egressip.HostState) (map[host.Route]host.Hop, host.Rules) {
	routes, rules := maps.Clone(before.Routes), host.Rules{}
	if routes == nil {
		routes = map[host.Route]host.Hop{}
	}
	maps.Copy(routes, now.Routes)
	maps.Copy(rules, now.Rules)
	for chain, list := range before.Rules {
		rules[chain] = slices.Concat(now.Rules[chain], slices.DeleteFunc(slices.Clone(list), func(r host.Rule) bool {
			return slices.Contains(now.Rules[chain], r)
		}))
	}
	return routes, rules
}

// forwardReleased forwards packets of other nodes' connections to those nodes. A kernel may
// lack the required features: then packets that only the other side sends wait for the pod to send.
func (c *Controller) forwardReleased(ctx context.Context, key string, before, next host.Rules) {
	if maps.EqualFunc(before, next, slices.Equal) {
		return
	}
	contributor := egressip.Contributor(key) + "/before"
	var refused, err error
	if len(next) == 0 {
		err = c.deps.Kernel.Chains.Apply(ctx, contributor, nil)
	} else {
		_, refused, err = c.copies.Apply(ctx, c.deps.Kernel.Chains, contributor, next, nil, time.Now())
	}
	if refused != nil {
		klog.InfoS("Connections are not forwarded to the previous holder of an address for a while", "egressIP", key, "duration", host.OptionalRetry, "err", refused)
	}
	if err != nil {
		klog.ErrorS(err, "Cannot withdraw rules", "egressIP", key)
	}
}

// flush ends the connections of pods whose translation differs from the one they
// would get now: a connection keeps the translation it was opened with. Pods that another feature
// leads have its translation, which stays right.
func (c *Controller) flush(ctx context.Context, before, after map[netip.Addr]netip.Addr) error {
	if maps.Equal(before, after) {
		return nil
	}
	rules, err := c.deps.Kernel.Rules(ctx)
	if err != nil {
		return fmt.Errorf("flush connections: %w", err)
	}
	preceded := egressip.Preceded(rules)
	stale := func(src, to netip.Addr) bool {
		was, want := before[src], after[src]
		if want.IsValid() {
			return want != was && to != want && !preceded[src]
		}
		return was.IsValid() && to == was
	}
	if err := c.deps.Kernel.Flush(ctx, stale, nil); err != nil {
		return fmt.Errorf("flush connections: %w", err)
	}
	return nil
}

// watchLinks enqueues EgressIPs with addresses on secondary networks after
// each change of the host's networks.
func (c *Controller) watchLinks(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	err := c.deps.Kernel.Watch(ctx, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	go func() {
		var last []host.Network
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(linkSettleTime):
			case <-ctx.Done():
				return
			}
			err := panics.Catch("egressip-node", func() error {
				now, err := c.networks()
				// Links of pods change all the time without affecting these networks.
				if err != nil || !reflect.DeepEqual(now, last) {
					last = now
					c.queue.Enqueue(c.touch()...)
				}
				return err
			})
			if err != nil {
				klog.ErrorS(err, "Cannot read the host's networks")
			}
		}
	}()
	return nil
}

// networks returns the host's links that have addresses.
func (c *Controller) networks() ([]host.Network, error) {
	all, err := c.deps.Kernel.Networks()
	if err != nil {
		return nil, fmt.Errorf("read the host's networks: %w", err)
	}
	return slices.DeleteFunc(all, func(n host.Network) bool { return len(n.Addrs) == 0 }), nil
}

// touch returns the EgressIPs with addresses on the host's links, and marks
// their kernel state for comparison.
func (c *Controller) touch() []string {
	var keys []string
	node, err := c.self()
	if err != nil {
		klog.ErrorS(err, "Cannot read this node")
		return nil
	}
	for _, e := range c.objects() {
		if len(egressip.AssignmentOf(e.Status, node).Secondary) > 0 {
			keys = append(keys, e.Name)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		c.touched[key] = true
	}
	return keys
}
