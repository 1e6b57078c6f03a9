package master

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// work is a set of rows to write for some pods at once, and the subsequent steps.
type work struct {
	want  map[nb.Owner][]nb.Row
	ports map[string]*port // by pod, the ports whose rows are in want
	steps []step
	waits waiters
	// rerouted are the pods that policies reroute.
	rerouted []string
}

// step is an action to take once the rows of a pod are written.
type step struct {
	key  string
	then func()
}

func newWork() *work {
	return &work{want: map[nb.Owner][]nb.Row{}, ports: map[string]*port{}, waits: waiters{}}
}

// write adds the rows of a pod.
func (w *work) write(key string, rows []nb.Row, then func()) {
	w.want[egressip.Owner(key)] = rows
	w.steps = append(w.steps, step{key, then})
}

// attach adds the rows of the port of a pod.
func (w *work) attach(key string, port *port) {
	w.want[port.owner], w.ports[key] = port.rows, port
}

// failed returns why the rows of a pod, or of its port, were not written.
func (w *work) failed(key string, errs map[nb.Owner]error) error {
	if err := errs[egressip.Owner(key)]; err != nil || w.ports[key] == nil {
		return err
	}
	return errs[w.ports[key].owner]
}

// errNotWritten is the outcome of a port if its worker panics.
var errNotWritten = errors.New("the pod's rows could not be written")

// reconcile writes the rows of pods, in as few transactions as possible. Those with a port, which a
// worker of pod/master waits for, are written before the others.
func (c *Controller) reconcile(ctx context.Context, keys []string) map[string]error {
	ported, others, errs := newWork(), newWork(), map[string]error{}
	c.podStates.plans(keys...)
	defer func() {
		c.podStates.clean(keys...)
		c.passed(keys)
	}()
	for _, key := range keys {
		w, port := others, c.podStates.takePort(key)
		if port != nil {
			defer port.answer(nb.Stats{}, errNotWritten)
			w = ported
		}
		if err := panics.Catch("egressip-pods", func() error { return c.plan(w, key, port) }); err != nil {
			errs[key] = err
			c.statuses.Enqueue(c.podStates.free(key)...) // it delays no other pod
			if port != nil {
				port.answer(nb.Stats{}, err)
			}
		}
	}
	for _, w := range []*work{ported, others} {
		stats, failed := c.apply(ctx, w)
		for key, port := range w.ports {
			port.answer(stats, w.failed(key, failed))
			if failed[port.owner] != nil {
				c.pods.Enqueue(key) // its steps were skipped
			}
		}
		for o, err := range failed {
			if o.Feature == egressip.Feature { // pod/master tries ports again
				errs[o.Object] = err
			}
		}
	}
	return errs
}

// apply writes the rows of pods and takes the subsequent steps. It returns the errors by owner.
func (c *Controller) apply(ctx context.Context, w *work) (stats nb.Stats, errs map[nb.Owner]error) {
	if len(w.want) == 0 && len(w.waits) == 0 {
		return stats, nil
	}
	defer c.wait(w.waits) // even after a failure: podStates has these waits
	if err := c.awaitNoReroute(ctx, w.rerouted); err != nil {
		errs = make(map[nb.Owner]error, len(w.want))
		for o := range w.want {
			errs[o] = err
		}
		return stats, errs
	}
	errs = map[nb.Owner]error{}
	if len(w.want) > 0 {
		stats, errs = c.deps.Writer.ApplyAll(ctx, w.want)
	}
	for _, s := range w.steps {
		if w.failed(s.key, errs) != nil {
			continue
		}
		err := panics.Catch("egressip-pods", func() error {
			s.then()
			return nil
		})
		if err != nil {
			errs[egressip.Owner(s.key)] = err
		}
	}
	if stats.Zero() {
		klog.V(4).InfoS("Policies are up to date", "pods", len(w.steps))
	} else {
		klog.V(2).InfoS("Policies written", "pods", len(w.steps), "ports", len(w.ports),
			"inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
	}
	return stats, errs
}

// awaitNoReroute waits until the pods' traffic to nodes is exempt from their policies.
func (c *Controller) awaitNoReroute(ctx context.Context, pods []string) error {
	ctx, cancel := context.WithTimeout(ctx, noRerouteTimeout)
	defer cancel()
	return c.deps.Rerouted.Await(ctx, pods...)
}

// plan adds the rows and steps of one pod, and the rows of its port if there is one to be written.
func (c *Controller) plan(w *work, key string, port *port) error {
	st := c.podStates.get(key)
	namespace, name, _ := strings.Cut(key, "/")
	p, err := c.deps.Pods.Lister().Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		p, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("get pod %s: %w", key, err)
	}
	if port != nil {
		if p == nil || kube.PodUID(p) != kube.PodUID(port.pod) || !kube.NeedsNetwork(p) {
			p = port.pod
			c.pods.Enqueue(key) // the event that says so may have been merged into this pass
		}
		c.planPod(w, key, st, p, port.addrs)
		w.attach(key, port)
		return nil
	}
	if p == nil && c.deps.Static(key) {
		// A static pod may run without its mirror pod as long as it has its port; pod/master calls Look when that is removed.
		c.keepRerouted(key)
		return nil
	}
	if p != nil && st.node == "" {
		st.node = p.Spec.NodeName // for deletePod
	}
	if p == nil || !kube.NeedsNetwork(p) {
		c.deletePod(w, key, st)
		return nil
	}
	addrs := c.deps.Given(key, kube.PodUID(p))
	if len(addrs) == 0 && len(c.deps.Writer.Rows(egressip.Owner(key))) > 0 {
		c.deletePod(w, key, st) // its port is gone, for example with its node
		return nil
	}
	c.planPod(w, key, st, p, addrs)
	return nil
}

// keepRerouted tells others that the addresses of a pod have policies, which a master that started later has not written itself.
func (c *Controller) keepRerouted(key string) {
	c.deps.Rerouted.Set(key, egressip.StateOf(c.deps.Writer.Rows(egressip.Owner(key))).Addrs())
}

// deletePod removes the rows of a deleted pod. The pod may send until its chassis has
// processed the removal of its port and flushed its datapath flows; until then the rows stay,
// but only for a limited time.
func (c *Controller) deletePod(w *work, key string, st *podState) {
	c.auditPodFound(key, nil, nil)
	c.statuses.Enqueue(c.podStates.free(key)...)
	c.statuses.Enqueue(c.members.Set(key, nil, nil)...)
	if st.left.IsZero() {
		st.left = time.Now()
	}
	portGone := len(c.deps.Given(key, "")) == 0
	portRemoved := c.podStates.portRemoved(st, st.uid)
	rest := podStartTimeout - time.Since(st.left)
	// The node of a pod that was deleted while no master ran is unknown; it may still have the pod's port.
	unknown, gone := st.node == "", false
	if !unknown {
		_, gone = c.chassis(st.node)
	}
	sends := !gone && !portRemoved
	if (sends || !c.formerGone(st)) && rest > 0 && len(c.deps.Writer.Rows(egressip.Owner(key))) > 0 {
		if unknown { // as for other pods that have policies
			c.keepRerouted(key)
		}
		if sends && portGone && !unknown { // otherwise pod/master calls Look when it is
			c.await(w.waits, key, st.node, reached{portGone: true, uid: st.uid, flushed: true})
		}
		c.pods.EnqueueAfter(rest, key)
		return
	}
	w.write(key, nil, func() {
		c.auditPod(key, nil, nil, egressip.NewState(), nil, audit.ReasonPodDeleted)
		c.deps.Rerouted.Set(key, nil)
		c.statuses.Enqueue(c.podStates.leaves(key)...)
		c.podStates.end(st)
	})
}

// Look enqueues a pod, "namespace/name", whose port was written or removed.
func (c *Controller) Look(key string) { c.pods.Enqueue(key) }

// removeRows removes the rows of a pod that no EgressIP has any more: first the policies,
// and once their removal is in force the translations.
func (c *Controller) removeRows(w *work, key string, st *podState, p *corev1.Pod, addrs []netip.Addr) {
	c.statuses.Enqueue(c.members.Set(key, nil, nil)...)
	now, earlier := c.rows(key, addrs)
	former := c.keepFormer(w, key, st, earlier)
	if !st.known {
		st.begin(now.Clone(), now)
	}
	plan := egressip.Steering{Pod: egressip.Pod{Addrs: now.Addrs()}, Now: now, Applied: st.applied, Unconfirmed: st.unconfirmed()}.Plan()
	kept := c.keepLocalSNAT(key, st.node, now, &plan)
	st.writes(now, plan.Want)
	w.write(key, slices.Concat(plan.Want.Rows(), former.Rows()), func() {
		st.wrote(plan.Want)
		st.keptFormer(former)
		c.auditPod(key, p, nil, plan.Want, nil, audit.ReasonNotSelected)
		// External gateways exempt the pod from its translations until these are removed.
		c.deps.Rerouted.Set(key, noreroute.Union(plan.Want.Addrs(), former.Addrs()))
		c.statuses.Enqueue(c.podStates.leaves(key)...)
		c.statuses.Enqueue(c.podStates.free(key)...)
		if c.awaitPlan(w.waits, key, st, p.Spec.NodeName, plan); !plan.Self && !kept {
			st.uid, st.applied, st.known = "", egressip.NewState(), false
		}
		c.updateGates(key, st, p, egressip.Open)
	})
}

// planPod plans the rows of a pod, and arranges to wait until they are in force after
// they are written. Nothing is written while the decision for the pod's EgressIP is missing.
func (c *Controller) planPod(w *work, key string, st *podState, p *corev1.Pod, addrs []netip.Addr) {
	c.auditPodFound(key, p, addrs)
	keys := c.choose(p)
	pod := c.observe(st, p)
	pod.Addrs = addrs
	if len(keys) > 0 && len(addrs) == 0 { // Attach brings its port, or its rows are removed with the port
		c.statuses.Enqueue(c.podStates.free(key)...)
		c.statuses.Enqueue(c.members.Set(key, nil, nil)...) // no node can have rules for it
		return
	}
	if len(keys) == 0 {
		c.removeRows(w, key, st, p, addrs)
		return
	}
	c.statuses.Enqueue(c.members.Set(key, keys, addrs)...)
	decision := c.podStates.decision(keys[0])
	now, earlier := c.rows(key, addrs)
	s, ok := c.planInput(st, keys[0], pod, now)
	if !ok { // placement will enqueue it
		return
	}
	plan := s.Plan()
	c.keepLocalSNAT(key, st.node, s.Now, &plan)
	former := c.keepFormer(w, key, st, earlier)
	// Addresses that have rows, even those of an earlier pod of that name, stay until these are removed.
	rerouted := s.Rerouted()
	c.deps.Rerouted.Set(key, noreroute.Union(noreroute.Union(rerouted, now.Addrs()), earlier.Addrs()))
	w.rerouted = append(w.rerouted, key)
	st.writes(s.Now, plan.Want)
	w.write(key, slices.Concat(plan.Want.Rows(), former.Rows()), func() {
		st.wrote(plan.Want)
		st.keptFormer(former)
		c.auditPod(key, p, addrs, plan.Want, keys, "")
		c.deps.Rerouted.Set(key, noreroute.Union(noreroute.Union(rerouted, plan.Want.Addrs()), former.Addrs()))
		c.updateGates(key, st, p, plan.StartGate(pod))
		c.awaitPlan(w.waits, key, st, p.Spec.NodeName, plan)
		c.statuses.Enqueue(c.podStates.planned(key, keys[0], decision, plan.Done, s.Translated())...)
	})
}

// observe applies the states reached by a pod's chassis, records whether the pod has the pending
// annotation, and returns whether it must keep waiting or has waited long enough.
func (c *Controller) observe(st *podState, p *corev1.Pod) egressip.Pod {
	if c.podStates.lostPending(st, p) { // its event may have preceded the pass that made the gate
		c.opened(kube.PodKey(p), p)
	}
	held, rest := c.podStates.observe(st, p)
	pending := held && rest > 0
	if pending {
		c.pods.EnqueueAfter(rest, kube.PodKey(p)) // afterwards the chassis that it waits for enqueue it again
	}
	return egressip.Pod{Key: kube.PodKey(p), Pending: pending, Late: held && !pending, NodeDown: c.dead(p.Spec.NodeName)}
}

// planInput collects the input for planning a pod; false while there is no decision
// for its EgressIP.
func (c *Controller) planInput(st *podState, name string, pod egressip.Pod, now egressip.State) (egressip.Steering, bool) {
	d, ok := c.decisions.of(name)
	if !ok {
		return egressip.Steering{}, false
	}
	obj, err := c.deps.EgressIPs.Lister().Get(name)
	if err != nil {
		return egressip.Steering{}, false // its deletion enqueues its pods
	}
	s := egressip.Steering{
		EgressIP: c.decode(obj),
		Pod:      pod,
		Paths:    d.Paths(c.written.last(obj).Status, pod.Addrs, c.digest(name), c.live),
		Now:      now,
		Owned:    c.decisions.owned,
	}
	// On the first pass the rows in the database count as in force, unless the pod waits.
	if !st.known && !pod.Pending && !pod.Late {
		st.begin(s.Used(), s.Now)
	}
	st.known = true
	s.Applied, s.Unconfirmed = st.applied, st.unconfirmed()
	return s, true
}
