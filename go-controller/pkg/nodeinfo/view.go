package nodeinfo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

const (
	// settleAgent is how long a new value of an annotation that a node writes about itself has to be there. A node
	// corrects foreign values within some 100 ms.
	settleAgent = 2 * time.Second
	// settleMaster is the same for annotations that the master writes: a leader may have to be elected first. These
	// hardly ever change.
	settleMaster = 30 * time.Second
)

// masters are the annotations that the master writes.
var masters = []string{kube.AnnotationNodeSubnets, kube.AnnotationGatewayLRPIfAddr}

// Settle returns how long a new value of an annotation has to be there before it takes effect.
func Settle(annotation string) time.Duration {
	if slices.Contains(masters, annotation) {
		return settleMaster
	}
	return settleAgent
}

// ByMaster returns the annotations that the master writes.
func ByMaster() []string { return slices.Clone(masters) }

// ByNode returns the annotations that a node writes about itself.
func ByNode() []string {
	return slices.DeleteFunc(kube.NodeAnnotations(), func(name string) bool { return slices.Contains(masters, name) })
}

// Deps are the dependencies of a View.
type Deps struct {
	// Nodes are the nodes as in the API. The caller starts the informer after New.
	Nodes   coreinformers.NodeInformer
	Cluster Cluster
	// Owns are the annotations that this process writes.
	Owns []string
	// Settle returns how long a new value of an annotation that others write has to be there.
	Settle func(annotation string) time.Duration
	// Recall returns what the databases have of a node, as values of annotations; nil if there are no databases to
	// ask.
	Recall func(node string) map[string]string
	// Refused is told once why an annotation does not take effect.
	Refused func(n *corev1.Node, err error)
}

// View is an informer of nodes with their effective annotations. It implements coreinformers.NodeInformer: readers
// watch and list it like the informer that it is based on.
type View struct {
	deps     Deps
	informer *informer
	written  cache.ResourceEventHandlerRegistration
	wake     chan struct{}
	refusals []func(node string) // functions registered with OnRefusal

	mu       sync.Mutex
	resolver *resolver
	first    bool // nothing has taken effect yet
	dirty    bool // something was decided
	// replaced are values that others wrote into annotations of this process, by node: the process may have
	// restored its own before the next pass.
	replaced map[string]map[string]refusal
}

var _ coreinformers.NodeInformer = (*View)(nil)

// New returns a View. It is empty until Run.
func New(deps Deps) (*View, error) {
	v := &View{
		deps: deps, wake: make(chan struct{}, 1), first: true,
		replaced: map[string]map[string]refusal{},
		informer: newInformer(deps.Nodes.Informer()),
		resolver: newResolver(deps.Cluster, deps.Owns, deps.Settle),
	}
	var err error
	v.written, err = deps.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { v.poke() },
		UpdateFunc: func(old, new any) {
			v.noteReplaced(old, new)
			v.poke()
		},
		DeleteFunc: func(any) { v.poke() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	return v, nil
}

// Informer implements coreinformers.NodeInformer.
func (v *View) Informer() cache.SharedIndexInformer { return v.informer }

// Lister implements coreinformers.NodeLister.
func (v *View) Lister() corelisters.NodeLister { return corelisters.NewNodeLister(v.informer.indexer) }

// Written returns the nodes as in the API, for writers of their annotations.
func (v *View) Written() coreinformers.NodeInformer { return v.deps.Nodes }

// Decide sets what this process wants annotations of a node to be; nil means absent. Call it before writing them:
// no other values take effect.
func (v *View) Decide(node types.UID, annotations map[string]*string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.resolver.decide(node, annotations) {
		v.dirty = true
		v.poke()
	}
}

// OnRefusal registers a function that is called when Refusal of a node has changed. Call it before Run; the
// function must not block.
func (v *View) OnRefusal(f func(node string)) { v.refusals = append(v.refusals, f) }

// Refusal returns why the first refused annotation of the given ones of a node does not take effect, or nil if
// there is none. Only values that have been there for as long as a valid value needs to take effect are reported: a
// node corrects foreign values before that.
func (v *View) Refusal(node string, annotations ...string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.resolver.refusal(node, annotations)
}

// noteReplaced notes which annotations of this process an update has changed.
func (v *View) noteReplaced(old, new any) {
	before, _ := old.(*corev1.Node)
	after, _ := new.(*corev1.Node)
	if before == nil || after == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, why := range v.resolver.replaced(before, after) {
		if v.replaced[after.Name] == nil {
			v.replaced[after.Name] = map[string]refusal{}
		}
		v.replaced[after.Name][name] = why
	}
}

// poke requests a pass.
func (v *View) poke() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// Run runs until ctx is done.
func (v *View) Run(ctx context.Context) error {
	if !queue.Informed(ctx, "nodes", v.written.HasSynced) {
		return nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-v.wake:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		rest := v.pass(time.Now())
		v.informer.sync()
		if rest > 0 {
			timer.Reset(rest)
		}
	}
}

// pass reads the nodes from the API and publishes what is effective. It returns the time until a waiting value may
// take effect.
func (v *View) pass(now time.Time) time.Duration {
	nodes, _ := v.deps.Nodes.Lister().List(labels.Everything()) // reads from memory and does not fail
	v.mu.Lock()
	byName, present := make(map[string]*corev1.Node, len(nodes)), make(map[types.UID]bool, len(nodes))
	dirty := v.first || v.dirty
	v.dirty = false
	for _, n := range nodes {
		byName[n.Name], present[n.UID] = n, true
	}
	// A deleted node gives up what it had.
	for name, s := range v.resolver.states {
		if n := byName[name]; n == nil || n.UID != s.uid {
			v.resolver.remove(name)
			dirty = true
		}
	}
	maps.DeleteFunc(v.resolver.decided, func(uid types.UID, _ map[string]*string) bool { return !present[uid] })
	for _, n := range nodes {
		if v.resolver.states[n.Name] == nil {
			var recalled map[string]string
			if v.deps.Recall != nil {
				recalled = v.deps.Recall(n.Name)
			}
			v.resolver.add(n, recalled)
			dirty = true
		} else if v.resolver.write(n) {
			dirty = true
		}
	}
	var rest time.Duration
	var refused map[string]map[string]refusal
	var changed []string
	if dirty || v.resolver.pending() || len(v.replaced) > 0 {
		before := v.resolver.refusals()
		rest = v.resolver.resolve(now, v.first)
		refused = v.resolver.refusals()
		for node, replaced := range v.replaced {
			if refused[node] == nil {
				refused[node] = map[string]refusal{}
			}
			for name, why := range replaced {
				refused[node][name] = why
			}
		}
		clear(v.replaced)
		changed = lasting(before, v.resolver.refusals())
		refused = newRefusals(before, refused)
	}
	v.first = false
	out := make(map[string]*corev1.Node, len(nodes))
	for _, n := range nodes {
		out[n.Name] = v.resolver.states[n.Name].overlay(n)
	}
	v.mu.Unlock()
	v.informer.replace(out)
	v.report(nodes, refused)
	for _, node := range changed {
		for _, f := range v.refusals {
			f(node)
		}
	}
	return rest
}

// pending reports whether a value or a refusal is waiting for its time.
func (r *resolver) pending() bool {
	for _, s := range r.states {
		if len(s.waiting) > 0 {
			return true
		}
		for _, f := range s.refused {
			if !f.lasts {
				return true
			}
		}
	}
	return false
}

// refusal returns the first lasting refusal among some annotations of a node.
func (r *resolver) refusal(node string, annotations []string) error {
	s := r.states[node]
	if s == nil {
		return nil
	}
	for _, name := range annotations {
		if f := s.refused[name]; f.lasts {
			return f.of(name)
		}
	}
	return nil
}

// of returns an error that says that the value of an annotation does not take effect.
func (f refusal) of(annotation string) error {
	return fmt.Errorf("annotation %s, value %s, does not count: %s", annotation, kube.Shorten(f.value), f.why)
}

// lasting returns the nodes whose lasting refusals have changed.
func lasting(before, after map[string]map[string]refusal) []string {
	lasts := func(refused map[string]refusal) map[string]refusal {
		out := maps.Clone(refused)
		maps.DeleteFunc(out, func(_ string, f refusal) bool { return !f.lasts })
		return out
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	var nodes []string
	for node := range all {
		if !maps.EqualFunc(lasts(before[node]), lasts(after[node]), refusal.same) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// refusals returns what is currently refused.
func (r *resolver) refusals() map[string]map[string]refusal {
	out := map[string]map[string]refusal{}
	for name, s := range r.states {
		if len(s.refused) > 0 {
			out[name] = maps.Clone(s.refused)
		}
	}
	return out
}

// newRefusals returns the refusals that are new.
func newRefusals(before, after map[string]map[string]refusal) map[string]map[string]refusal {
	for node, refused := range after {
		maps.DeleteFunc(refused, func(name string, r refusal) bool {
			was, ok := before[node][name]
			return ok && was.same(r)
		})
	}
	return after
}

// overlay returns a node with its effective annotations: the node itself if they do not differ.
func (s *state) overlay(n *corev1.Node) *corev1.Node {
	if maps.Equal(s.written, s.effective) {
		return n
	}
	shown := *n
	shown.Annotations = maps.Clone(n.Annotations)
	if shown.Annotations == nil {
		shown.Annotations = map[string]string{}
	}
	for _, name := range kube.NodeAnnotations() {
		delete(shown.Annotations, name)
	}
	maps.Copy(shown.Annotations, s.effective)
	return &shown
}

// report reports why annotations do not take effect.
func (v *View) report(nodes []*corev1.Node, refused map[string]map[string]refusal) {
	for _, n := range nodes {
		for _, name := range slices.Sorted(maps.Keys(refused[n.Name])) {
			r := refused[n.Name][name]
			klog.InfoS("Refused an annotation of a node", "node", n.Name, "annotation", name, "value", kube.Shorten(r.value), "reason", r.why)
			if v.deps.Refused != nil {
				v.deps.Refused(n, r.of(name))
			}
		}
	}
}
