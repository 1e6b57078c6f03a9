package master

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
)

// grace is how long a host may take to acknowledge a change of endpoints before
// the condition reports it: most take a few milliseconds, and each change of the
// condition is a write.
const grace = time.Second

// getTimeout bounds a request to the API server.
const getTimeout = 2 * time.Second

// noRerouteTimeout bounds the wait for the policies that must precede those of pods.
const noRerouteTimeout = 2 * time.Second

// reconcile writes the rows and the status of one EgressService.
//
// New traffic follows the acknowledgement: first the host is set in the status, then the host
// acknowledges that it is ready, then the policies are written. Traffic ends in the opposite order:
// the policies are removed before the status stops naming the host.
func (c *Controller) reconcile(ctx context.Context, key string) error {
	eg, err := c.reader.Object(key)
	if err != nil {
		return err
	}
	if eg == nil {
		c.forget(key)
		if err := c.apply(ctx, key, nil); err != nil {
			return err
		}
		c.auditDeleted(key)
		c.deps.Pods.Set(key, nil)
		return nil
	}
	d, ok := c.decision(key)
	if !ok || d.UID != eg.UID || d.Generation != eg.Generation {
		// Placement will enqueue it. Nothing is reported about a spec that placement has not seen.
		return nil
	}
	s, others, err := c.read(eg)
	if err != nil {
		return err
	}
	c.claimed(others)
	if c.publish(s, d) {
		if s, others, err = c.read(eg); err != nil {
			return err
		}
		c.claimed(others)
	}
	if s.Refused.Reason == egressservice.NoService && c.serviceArrives(ctx, eg) {
		return nil // the Service's event enqueues the key
	}
	c.auditFound(eg, s)
	host := egressservice.Status(s, d)
	if host == v1.HostAll && c.gone(s.Ack.Host) {
		s.Ack = v1.ProgrammedStatus{} // no other node would remove it
	}
	single := host != "" && host != v1.HostAll
	if single && c.known(eg).Host != host {
		if err := c.setAndRecord(ctx, eg, s, d); err != nil {
			return err
		}
		s = c.acknowledged(eg, s)
	}
	c.noteAcknowledgement(s, d)
	current := c.isCurrent(s, d)
	if current {
		c.deps.Metrics.Acknowledged(conditions.EgressService, key)
	}
	pods := steered(s, d)
	now := egressservice.SteeringOf(c.deps.Writer.Rows(egressservice.Owner(key)))
	rows := egressservice.Rows(s, d, now)
	if err := c.applyRows(ctx, key, pods, now, rows); err != nil {
		return err
	}
	c.auditPods(eg, s, d, egressservice.SteeringOf(rows))
	if current {
		c.deps.Metrics.Programmed(conditions.EgressService, key)
	}
	if c.transient(eg, s, d) {
		return nil
	}
	if err := c.setAndRecord(ctx, eg, s, d); err != nil {
		return err
	}
	c.emitEvents(eg, s, d)
	return nil
}

// steered returns the pods that have policies, or may get them.
func steered(s egressservice.Service, d egressservice.Decision) []netip.Addr {
	return append(egressservice.Rerouted(s, d), egressservice.PendingPods(s, d)...)
}

// publish adds pods to the published ones, and reports whether there are any new ones: these have to be read again. Once their addresses
// are published, no other pod gets them; before, their pods may have been deleted.
func (c *Controller) publish(s egressservice.Service, d egressservice.Decision) bool {
	pods := steered(s, d)
	if !slices.ContainsFunc(pods, func(a netip.Addr) bool { return !c.deps.Pods.Has(a) }) {
		return false
	}
	c.deps.Pods.Set(s.Key, noreroute.Union(pods, egressservice.SteeringOf(c.deps.Writer.Rows(egressservice.Owner(s.Key))).Addrs()))
	return true
}

// serviceArrives reports whether there is a Service that the informer has not seen yet:
// objects created one after the other may be seen in reverse order, and the user
// would get a wrong warning. The API server is asked only once for each EgressService without a Service.
func (c *Controller) serviceArrives(ctx context.Context, eg *v1.EgressService) bool {
	assigned := meta.FindStatusCondition(c.known(eg).Conditions, v1.ConditionAssigned)
	if assigned != nil && assigned.Reason == string(egressservice.NoService) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	_, err := c.deps.Kube.CoreV1().Services(eg.Namespace).Get(ctx, eg.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		klog.V(2).InfoS("Cannot determine whether a Service exists", "egressService", eg.Namespace+"/"+eg.Name, "err", err)
	}
	return err == nil
}

// setAndRecord writes the decision and its progress to the status, and the current
// host to the audit log.
func (c *Controller) setAndRecord(ctx context.Context, eg *v1.EgressService, s egressservice.Service, d egressservice.Decision) error {
	host, err := c.setStatus(ctx, eg, s, d)
	if err != nil {
		return err
	}
	c.auditHost(eg, s, d, host)
	return nil
}

// isCurrent reports whether the host has acknowledged the decision, and no other decision
// was made meanwhile.
func (c *Controller) isCurrent(s egressservice.Service, d egressservice.Decision) bool {
	last, ok := c.decision(s.Key)
	return ok && last.Equal(d) && egressservice.Acknowledged(s, d)
}

// gone reports whether there is no longer a node of the given name.
func (c *Controller) gone(node string) bool {
	if node == "" {
		return false
	}
	_, err := c.nodes.Get(node)
	return apierrors.IsNotFound(err)
}

// applyRows writes the policies of pods. The pods' traffic to nodes is exempt from the
// policies as long as there are any.
func (c *Controller) applyRows(ctx context.Context, key string, pods []netip.Addr, now egressservice.Steering, rows []nb.Row) error {
	c.deps.Pods.Set(key, noreroute.Union(pods, now.Addrs()))
	limited, cancel := context.WithTimeout(ctx, noRerouteTimeout)
	defer cancel()
	if err := c.deps.Pods.Await(limited, key); err != nil {
		return err
	}
	if err := c.apply(ctx, key, rows); err != nil {
		return err
	}
	c.deps.Pods.Set(key, pods)
	return nil
}

// transient reports whether the condition would only say that the host has not yet
// acknowledged a change. If so, it enqueues the key to check again later.
func (c *Controller) transient(eg *v1.EgressService, s egressservice.Service, d egressservice.Decision) bool {
	known := c.known(eg)
	waits := known.Host != "" && known.Host == d.Host && known.Host != v1.HostAll &&
		egressservice.Done(known) && !egressservice.Acknowledged(s, d)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !waits {
		delete(c.unprogrammedSince, s.Key)
		return false
	}
	since, ok := c.unprogrammedSince[s.Key]
	if !ok {
		since = time.Now()
		c.unprogrammedSince[s.Key] = since
		time.AfterFunc(grace, func() { c.services.Enqueue(s.Key) })
	}
	return time.Since(since) < grace
}

func (c *Controller) forget(key string) {
	c.claimed(c.reader.Forget(key))
	c.deps.Metrics.Decided(conditions.EgressService, key)
	c.patched.Forget(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lastEvents, key)
	delete(c.unprogrammedSince, key)
	delete(c.acks, key)
	c.ackTimeouts.SetPending(key, nil)
}

func (c *Controller) apply(ctx context.Context, key string, rows []nb.Row) error {
	stats, err := c.deps.Writer.Apply(ctx, egressservice.Owner(key), rows)
	if err != nil {
		return fmt.Errorf("apply policies of EgressService %s: %w", key, err)
	}
	if stats.Zero() {
		klog.V(4).InfoS("Policies are up to date", "egressService", key, "policies", len(rows))
	} else {
		klog.V(2).InfoS("Policies written", "egressService", key,
			"inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
	}
	return nil
}
