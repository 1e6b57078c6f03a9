package master

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// podStartTimeout is how long a pod is kept from starting by policies that are not in
// force. After it the pod starts, and what it sends is dropped until they are.
const podStartTimeout = 5 * time.Second

// revalidateDelay is how long a chassis may go on by what its datapath remembers of flows
// that were replaced, which ovn-controller knows nothing of, and hence the barrier
// does not either. Open vSwitch goes through them at the latest after
// other_config:max-revalidator, or max-idle where that is less: 500 ms by default, and
// not meant to be raised. That a pass takes as long again is rather much.
const revalidateDelay = time.Second

// podState is what is known of a pod besides its rows. The controller's mu guards
// it, but for what belongs to who works on the pod.
type podState struct {
	// busy: somebody works on the pod; again: its key is to come back then.
	busy, again bool
	idle        chan struct{} // closed when nobody does any more; nil: nobody waits for that
	gate        startGate
	waits       map[string]bool // what is waited for
	reached     []reached

	// Of who works on the pod: what is in force, of which incarnation.
	uid     types.UID
	inForce egressip.State
	known   bool // inForce says something
	node    string
	left    time.Time // when we learned that the pod is gone; zero: it is there
}

// reached is what a chassis has in force.
type reached struct {
	own      bool // the pod's, which has policies
	policies map[netip.Addr]egressip.Policy
	nats     map[egressip.Site]netip.Addr
	portGone bool // the pod's, which does not have its port any more
	// flushed: what was there before must be out of the chassis' memory, too.
	flushed bool
}

// startGate is that on a pod which is not to start yet.
type startGate struct {
	uid   types.UID
	since time.Time          // when we learned of it
	state egressip.StartGate // what its pod's plan says
	open  bool               // we took it away
}

// state returns the state of a pod; mu is held.
func (c *Controller) state(key string) *podState {
	st := c.states[key]
	if st == nil {
		st = &podState{waits: map[string]bool{}, inForce: egressip.NewState()}
		c.states[key] = st
	}
	return st
}

// tryLock takes hold of a pod; it fails where somebody works on it, who brings its
// key back at the end.
func (c *Controller) tryLock(key string) (*podState, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.state(key)
	if st.busy {
		st.again = true
		return nil, false
	}
	st.busy = true
	return st, true
}

// lock takes hold of a pod when nobody works on it any more.
func (c *Controller) lock(ctx context.Context, key string) (*podState, error) {
	for {
		c.mu.Lock()
		st := c.state(key)
		if !st.busy {
			st.busy = true
			c.mu.Unlock()
			return st, nil
		}
		if st.idle == nil {
			st.idle = make(chan struct{})
		}
		idle := st.idle
		c.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for who works on pod %s: %w", key, ctx.Err())
		}
	}
}

// unlock lets go of pods. One that nothing is to be known of is forgotten.
func (c *Controller) unlock(keys ...string) {
	var again []string
	c.mu.Lock()
	for _, key := range keys {
		st := c.states[key]
		if st.again {
			again = append(again, key)
		}
		st.busy, st.again = false, false
		if st.idle != nil {
			close(st.idle)
			st.idle = nil
		}
		if st.uid == "" && st.gate == (startGate{}) && len(st.waits) == 0 {
			delete(c.states, key)
		}
	}
	c.mu.Unlock()
	c.pods.Enqueue(again...)
}

func (c *Controller) watchPods() error {
	nb.Bind(c.pods, c.deps.Writer, egressip.Feature)
	c.pods.Seed(func() []string {
		c.choosing.Store(true) // from here on the events tell
		var keys []string
		for _, obj := range c.deps.Pods.Informer().GetIndexer().List() {
			if p, ok := obj.(*corev1.Pod); ok && (isPending(p) || kube.NeedsNetwork(p) && len(c.choose(p)) > 0) {
				keys = append(keys, kube.PodKey(p))
			}
		}
		return keys
	})
	if err := c.pods.Watch(c.deps.EgressIPs.Informer(), c.podsOfEgressIP); err != nil {
		return err
	}
	if err := c.pods.Watch(c.deps.Namespaces.Informer(), c.podsOfNamespace); err != nil {
		return err
	}
	return c.pods.Watch(c.deps.Pods.Informer(), podKeys)
}

func podKeys(old, new any) []string {
	o, _ := old.(*corev1.Pod)
	n, _ := new.(*corev1.Pod)
	switch {
	case o == nil:
		return []string{kube.PodKey(n)}
	case n != nil && o.UID == n.UID && maps.Equal(o.Labels, n.Labels) && kube.NeedsNetwork(o) == kube.NeedsNetwork(n) &&
		isPending(o) == isPending(n):
		return nil
	}
	return []string{kube.PodKey(o)}
}

func (c *Controller) podsOfNamespace(old, new any) []string {
	o, _ := old.(*corev1.Namespace)
	n, _ := new.(*corev1.Namespace)
	if o != nil && n != nil && maps.Equal(o.Labels, n.Labels) {
		return nil
	}
	if n == nil {
		n = o
	}
	keys, err := c.deps.Pods.Informer().GetIndexer().IndexKeys(cache.NamespaceIndex, n.Name)
	if err != nil {
		klog.ErrorS(err, "Cannot list the pods of a namespace", "namespace", n.Name) // the index is the factory's
	}
	return keys
}

// podsOfEgressIP returns the pods that a change of an EgressIP concerns.
func (c *Controller) podsOfEgressIP(old, new any) []string {
	o, _ := old.(*v1.EgressIP)
	n, _ := new.(*v1.EgressIP)
	c.updateSelection(nameOf(o, n))
	if o != nil && n != nil && o.UID == n.UID && equality.Semantic.DeepEqual(o.Spec, n.Spec) {
		if slices.EqualFunc(o.Status.Programmed, n.Status.Programmed, func(a, b v1.ProgrammedStatus) bool {
			a.Awaiting, b.Awaiting = nil, nil // that is for the status
			return egressip.SameNodeStatus(a, b)
		}) {
			return nil
		}
		return c.members.Selected(n.Name)
	}
	var keys []string
	for _, e := range []*v1.EgressIP{o, n} {
		if e == nil {
			continue
		}
		keys = append(keys, c.members.Selected(e.Name)...)
		if !c.choosing.Load() {
			continue // every pod that anybody chooses is a start-up key
		}
		if s, err := egressip.NewSelector(e); err == nil {
			keys = append(keys, c.chosen(s)...)
		}
	}
	return keys
}

func nameOf(old, new *v1.EgressIP) string {
	if new == nil {
		return old.Name
	}
	return new.Name
}

func isPending(p *corev1.Pod) bool {
	_, ok := p.Annotations[kube.AnnotationEgressPending]
	return ok
}
