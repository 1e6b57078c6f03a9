package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// handOnTime is how long a host hands packets of unknown connections on to the previous host after the
// master has led the pods to it: a node that is cut off from the control plane leads its pods
// to the previous host until ovn-controller has the policies, and if it is that host itself, it translates
// for them until then. The previous host does so for Linger longer, and drops strays for as long: a packet that
// neither knows must not create a connection on either.
const handOnTime = 30 * time.Second

// otherHost is the node that was the host before this one, or is the host after it.
type otherHost struct {
	name  string
	until time.Time // when packets are no longer handed on to it; zero: not known yet
	addrs []netip.Addr
	// incomplete: a write failed, and the kernel may have its rules or get them with the next write of others.
	incomplete bool
}

// handOn hands packets of connections that this node does not know on to the previous host, if this
// node has taken over from one, or to the next one, if that has taken over from this node. A kernel may lack the required
// features: then replies are lost until the outside, or the pod's node, follows the move.
func (c *Controller) handOn(ctx context.Context, s egressservice.Service, given egressservice.Translations) error {
	c.mu.Lock()
	had := c.others[s.Key]
	c.mu.Unlock()
	now := time.Now()
	next := c.otherHost(s, had, now)
	if next.name != "" {
		next.addrs = given.Addresses()
		if len(given) == 0 { // expiring rules still translate, or did a moment ago
			next.addrs = slices.DeleteFunc(slices.Clone(had.addrs), func(a netip.Addr) bool { return !slices.Contains(s.Ingress, a) })
		}
	}
	if had.incomplete || next.name != had.name || !slices.Equal(next.addrs, had.addrs) {
		had.incomplete = true
		c.noteOther(s.Key, had)
		if err := c.writeHandOn(ctx, s.Key, next, now); err != nil {
			return err
		}
	}
	c.noteOther(s.Key, next)
	if !next.until.IsZero() {
		c.queue.EnqueueAfter(next.until.Sub(now), s.Key)
	}
	return nil
}

func (c *Controller) noteOther(key string, o otherHost) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.others[key] = o; o.name == "" && !o.incomplete {
		delete(c.others, key)
	}
}

// writeHandOn writes the rules for next, none if there is no other host.
func (c *Controller) writeHandOn(ctx context.Context, key string, next otherHost, now time.Time) error {
	contributor, strays := egressservice.Contributor(key)+"~hand-on", egressservice.StrayRules(next.addrs, key)
	copies := egressservice.HandOnRules(next.addrs, c.deps.Neighbor(next.name))
	if len(copies) == 0 {
		return failedStrays(key, c.deps.Chains.Apply(ctx, contributor, strays))
	}
	maps.Copy(copies, strays)
	written, refused, err := c.copies.Apply(ctx, c.deps.Chains, contributor, copies, strays, now)
	switch {
	case written:
		klog.V(2).InfoS("Packets of unknown connections are handed on", "egressService", key, "node", next.name, "addresses", next.addrs)
	case refused != nil:
		klog.InfoS("Packets of unknown connections are not handed on for a while", "egressService", key, "node", next.name, "duration", host.OptionalRetry, "err", refused)
	}
	return failedStrays(key, err)
}

func failedStrays(key string, err error) error {
	if err != nil {
		return fmt.Errorf("apply rules for packets of EgressService %s that belong to no connection: %w", key, err)
	}
	return nil
}

// otherHost returns the node that packets are handed on to, the zero value for none; had is the current one.
func (c *Controller) otherHost(s egressservice.Service, had otherHost, now time.Time) otherHost {
	self := c.deps.Node
	switch {
	case s.Host == "" || s.Host == v1.HostAll || s.Ack.Host == "":
		return otherHost{}
	case s.Host == self && s.Ack.Host != self: // it has not taken over yet
		return otherHost{name: s.Ack.Host}
	case s.Host != self && s.Ack.Host == self: // the next one has no rules yet
		return otherHost{}
	case s.Host != self && c.role(s).Host == self: // it has, and the pods are led there any moment
		return otherHost{name: s.Host}
	case had.name == "" || s.Host != self && had.name != s.Host:
		return otherHost{}
	case !had.until.IsZero() && !now.Before(had.until):
		return otherHost{}
	case !had.until.IsZero():
		return otherHost{name: had.name, until: had.until}
	case s.Host != self:
		return otherHost{name: had.name, until: now.Add(handOnTime + c.deps.Linger)}
	case s.Done:
		return otherHost{name: had.name, until: now.Add(handOnTime)}
	}
	return otherHost{name: had.name}
}
