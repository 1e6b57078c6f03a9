package master

import (
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// snatPoll is when it is looked again whether a pod's node has taken over a
// translation.
const snatPoll = 20 * time.Millisecond

// Where each pod has a translation of its own on its node's gateway router, it must
// not stay beside that of an EgressIP: of two with one address OVN may apply either.
// So we say which pods we translate on their own nodes: when ours is written the
// other one goes, and ours goes when the other one is back.

// OwnsLocalSNAT tells whether the translation of an address of a pod on its own node is
// an EgressIP's. That of a pod which must not send yet may become one.
func (c *Controller) OwnsLocalSNAT(pod, node string, a netip.Addr) bool {
	namespace, name, _ := strings.Cut(pod, "/")
	if p, err := c.deps.Pods.Lister().Pods(namespace).Get(name); err == nil && isPending(p) {
		return true
	}
	c.mu.Lock()
	var own map[netip.Addr]bool
	if st := c.states[pod]; st != nil {
		if st.gate.uid != "" && !st.gate.open {
			c.mu.Unlock()
			return true
		}
		own = maps.Clone(st.localSNAT)
	}
	c.mu.Unlock()
	if own != nil {
		return own[a]
	}
	_, ok := egressip.StateOf(c.deps.Writer.Rows(egressip.Owner(pod))).NATs[egressip.Site{Pod: a, Node: node}]
	return ok
}

// OnLocalSNATChange registers a function that is called when Translates may have another
// answer for a pod. It is called before Run, and the function must not block.
func (c *Controller) OnLocalSNATChange(f func(pod, node string)) {
	c.onLocalSNAT = append(c.onLocalSNAT, f)
}

// setLocalSNAT notes what we translate of a pod on its own node.
func (c *Controller) setLocalSNAT(key string, st *podState, own map[netip.Addr]bool) {
	if c.deps.Translated == nil {
		return
	}
	c.mu.Lock()
	changed := st.localSNAT == nil || !maps.Equal(st.localSNAT, own)
	st.localSNAT = own
	c.mu.Unlock()
	if changed {
		c.notifyLocalSNAT(key, st.node)
	}
}

func (c *Controller) notifyLocalSNAT(key, node string) {
	if c.deps.Translated == nil {
		return
	}
	for _, f := range c.onLocalSNAT {
		f(key, node)
	}
}

// returnSNAT keeps, of a pod's translations on its own node, those that are to go, until
// the node's own are there; going tells that there are any. The others are ours when
// the plan is written.
func (c *Controller) returnSNAT(key string, st *podState, now egressip.State, plan *egressip.Plan) (ours map[netip.Addr]bool, going bool) {
	if c.deps.Translated == nil {
		return nil, false
	}
	_, gone := c.chassis(st.node)
	ours = map[netip.Addr]bool{}
	for site := range plan.Want.NATs {
		if site.Node == st.node {
			ours[site.Pod] = true
		}
	}
	stay := map[netip.Addr]bool{}
	for site := range now.NATs {
		if site.Node == st.node && ours[site.Pod] {
			stay[site.Pod] = true
		}
	}
	c.setLocalSNAT(key, st, stay)
	for site, addr := range now.NATs {
		if site.Node != st.node || stay[site.Pod] || gone || c.deps.Translated(key, st.node, site.Pod) {
			continue
		}
		plan.Want.NATs[site], going = addr, true
	}
	if going {
		c.pods.EnqueueAfter(snatPoll, key)
	}
	return ours, going
}
