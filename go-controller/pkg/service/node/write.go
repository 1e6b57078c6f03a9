package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
)

// write writes one kind of configuration for all Services.
func (c *Controller) write(ctx context.Context, kind string) error {
	var err error
	switch kind {
	case writeChains:
		rules, sctp := c.rules()
		err = errors.Join(c.Chains.Apply(ctx, contributor, rules), c.Chains.Apply(ctx, sctpContributor, sctp))
		c.writes.MarkSynced(kind)
	case writeRoutes:
		all := map[host.Route]host.Hop{}
		c.each(func(_ string, s service.NodeState) { maps.Copy(all, s.Routes) })
		err = c.Routes.Apply(ctx, contributor, all)
		c.writes.MarkSynced(kind)
	case writeFlows:
		err = c.applyFlows(ctx)
	case writeHealth: // nothing to sweep
		c.writes.MarkSynced(kind)
		c.serveHealth()
	case writeUDP: // likewise
		c.writes.MarkSynced(kind)
		err = c.flush(ctx)
	}
	if err != nil {
		return fmt.Errorf("write %s of Services: %w", kind, err)
	}
	klog.V(4).InfoS("Services are up to date", "kind", kind)
	return nil
}

// each calls f for the key and the state of every Service, sorted by key.
func (c *Controller) each(f func(string, service.NodeState)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.states)) {
		f(key, c.states[key])
	}
}

// rules returns the rules of all Services, and those for SCTP.
func (c *Controller) rules() (others, sctp host.Rules) {
	others, sctp = host.Rules{}, host.Rules{}
	c.each(func(_ string, s service.NodeState) {
		for chain, rules := range s.Rules {
			for _, r := range rules {
				to := others
				if strings.Contains(string(r), "-p sctp ") {
					to = sctp
				}
				to[chain] = append(to[chain], r)
			}
		}
	})
	return others, sctp
}

func (c *Controller) applyFlows(ctx context.Context) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	facts := bridge.Bridge{MAC: n.Gateway.MAC, VLAN: n.Gateway.VLAN}
	var flows []host.Flow
	seen := map[host.Flow]bool{}
	next := rendered{facts: facts, byKey: map[string]ingressFlows{}}
	render := func(i service.Ingress) []host.Flow { return bridge.IngressFlows(facts, bridge.Ingress(i), c.Marks) }
	c.each(func(key string, s service.NodeState) {
		for _, f := range c.rendered.of(key, s.Ingress, next, render) {
			if !seen[f] {
				seen[f] = true
				flows = append(flows, f)
			}
		}
	})
	c.rendered = next
	err = c.Flows.Apply(ctx, contributor, flows)
	c.writes.MarkSynced(writeFlows)
	return err
}

// healthRetry is how soon a health port that another process had is tried again: there is
// no notification when a port becomes free.
const healthRetry = 2 * time.Second

// serveHealth serves the health ports. A port that another process has is reported once and
// does not affect the others.
func (c *Controller) serveHealth() {
	problems := c.health.set(c.healths())
	reported := map[string]bool{}
	for _, p := range problems {
		message := fmt.Sprintf("spec.healthCheckNodePort: %d is not served on node %s: %v", p.Port, c.Node, p.err)
		key := p.Namespace + "/" + p.Name
		svc := c.reader.Object(key)
		if svc == nil {
			continue // it was deleted a moment ago
		}
		// A Service that is created with the name of a deleted one has no Events yet.
		id := fmt.Sprintf("%s %s %s", key, svc.UID, message)
		reported[id] = true
		if c.healthReported[id] {
			continue
		}
		klog.V(2).InfoS("Health port is not served", "service", key, "port", p.Port, "reason", p.err)
		c.Recorder.Event(svc, corev1.EventTypeWarning, string(service.HealthPortInUse), message)
	}
	c.healthReported = reported
	if len(problems) > 0 {
		c.writes.EnqueueAfter(healthRetry, writeHealth)
	}
}

func (c *Controller) healths() []service.Health {
	var all []service.Health
	c.each(func(_ string, s service.NodeState) {
		if s.Health != nil {
			all = append(all, *s.Health)
		}
	})
	return all
}

// bindings returns the destinations of UDP packets of all Services.
func (c *Controller) bindings() service.Bindings {
	all := service.Bindings{}
	c.each(func(_ string, s service.NodeState) { maps.Copy(all, s.UDP) })
	return all
}

// flush deletes stale UDP conntrack entries. It runs after the rules are written, and again
// when OVN's load balancers have been updated: until then, packets from a client recreate
// such entries.
func (c *Controller) flush(ctx context.Context) error {
	rules, _ := c.rules()
	if err := c.Chains.Apply(ctx, contributor, rules); err != nil {
		return err
	}
	if len(c.bindings()) == 0 {
		return nil
	}
	n, err := c.FlushUDP(ctx, func() func(service.Entry) bool { return c.bindings().Stale })
	if err != nil {
		return err
	}
	if n > 0 {
		klog.V(2).InfoS("Deleted stale UDP connections", "entries", n)
	}
	return nil
}
