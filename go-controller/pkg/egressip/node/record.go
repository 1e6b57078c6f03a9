package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// recordKey is the key for restoring the record; no EgressIP has this name.
const recordKey = "/record"

// Record keeps track of which addresses on the host's links are egress addresses. They
// are in an annotation of the node from before they are added until after they are
// removed, so that a restarted process recognizes them.
type Record struct {
	node   string
	kube   kubernetes.Interface
	nodes  coreinformers.NodeInformer
	passes *host.Coalescer[error]

	mu     sync.Mutex
	loaded bool
	known  map[netip.Addr]bool            // as in the annotation
	want   map[string]map[netip.Addr]bool // by EgressIP, with those that it may still have on the host
	// wanted are all addresses that this process has recorded. Others that are known were left by an earlier one.
	wanted map[netip.Addr]bool
	swept  bool // what earlier processes left has been removed from the host
}

// NewRecord returns the record of a node.
func NewRecord(node string, cs kubernetes.Interface, nodes coreinformers.NodeInformer) *Record {
	return &Record{node: node, kube: cs, nodes: nodes, passes: host.NewCoalescer[error](),
		known: map[netip.Addr]bool{}, want: map[string]map[netip.Addr]bool{}, wanted: map[netip.Addr]bool{}}
}

// Addresses returns the recorded addresses.
func (r *Record) Addresses() []netip.Addr {
	r.load()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.known), netip.Addr.Compare)
}

// Has reports whether an address is recorded.
func (r *Record) Has(a netip.Addr) bool { return slices.Contains(r.Addresses(), a) }

// load reads the record of an earlier run, as soon as the node is known.
func (r *Record) load() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded {
		return
	}
	n, err := r.nodes.Lister().Get(r.node)
	if err != nil {
		return
	}
	r.loaded = true
	addrs, err := kube.EgressIPAddresses(n)
	if err != nil {
		klog.ErrorS(err, "The record of egress addresses on this node is lost")
	}
	for _, a := range addrs {
		r.known[a] = true
	}
}

// Set sets the recorded addresses of an EgressIP. If keep is true, its former ones stay, because they may still be on
// the host, until it is called with false. What only an earlier process has recorded is kept until Trim. In both cases, only the
// record tells that an address is ours.
func (r *Record) Set(ctx context.Context, key string, addrs map[netip.Addr]bool, keep bool) error {
	r.load()
	r.mu.Lock()
	all := map[netip.Addr]bool{}
	maps.Copy(all, addrs)
	if keep {
		maps.Copy(all, r.want[key])
	}
	if r.want[key] = all; len(all) == 0 {
		delete(r.want, key)
	}
	maps.Copy(r.wanted, all)
	same := maps.Equal(r.next(), r.known)
	r.mu.Unlock()
	if same {
		return nil
	}
	failed, err := r.passes.Do(ctx, r.passes.Request(), r.write)
	if err != nil {
		return err
	}
	return failed
}

// next returns what is to be recorded. The caller holds r.mu.
func (r *Record) next() map[netip.Addr]bool {
	next := map[netip.Addr]bool{}
	for _, some := range r.want {
		maps.Copy(next, some)
	}
	for a := range r.known {
		if !r.swept && !r.wanted[a] {
			next[a] = true
		}
	}
	return next
}

// Released returns the addresses of an EgressIP that neither its next ones nor another EgressIP include, and that an earlier
// process may have left on the host: as long as leftovers are not deleted, nothing else removes those.
func (r *Record) Released(key string, next map[netip.Addr]bool) []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.swept {
		return nil
	}
	released := maps.Clone(r.want[key])
	maps.DeleteFunc(released, func(a netip.Addr, _ bool) bool { return next[a] })
	for other, some := range r.want {
		maps.DeleteFunc(released, func(a netip.Addr, _ bool) bool { return other != key && some[a] })
	}
	return slices.Collect(maps.Keys(released))
}

// Trim removes the addresses that no EgressIP wants, once they are removed from the host.
func (r *Record) Trim(ctx context.Context) error {
	r.mu.Lock()
	r.swept = true
	r.mu.Unlock()
	return r.Set(ctx, "", nil, false)
}

// StandsIn reports whether a node's annotation matches the record. Before the record
// is read, every annotation does.
func (r *Record) StandsIn(n *corev1.Node) bool {
	return !r.isLoaded() || n.Annotations[kube.AnnotationEgressIPAddresses] == r.annotation()
}

// annotation returns the value of the annotation, or "" if no address is recorded.
func (r *Record) annotation() string {
	addrs := r.Addresses()
	if len(addrs) == 0 {
		return ""
	}
	return kube.FormatEgressIPAddresses(addrs)
}

// Restore writes the annotation again if it does not match the record because somebody
// else changed it.
func (r *Record) Restore(ctx context.Context) error {
	failed, err := r.passes.Do(ctx, r.passes.Request(), r.restore)
	if err != nil {
		return err
	}
	return failed
}

func (r *Record) restore(ctx context.Context) error {
	n, err := r.nodes.Lister().Get(r.node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore the record of egress addresses: %w", err)
	}
	if !r.isLoaded() {
		return nil // the annotation is the record
	}
	var value *string
	if text := r.annotation(); text != "" {
		value = kube.Value(text)
	}
	err = kube.PatchNode(ctx, r.kube, n, kube.Metadata{Annotations: map[string]*string{kube.AnnotationEgressIPAddresses: value}})
	if err != nil {
		return fmt.Errorf("restore the record of egress addresses: %w", err)
	}
	return nil
}

func (r *Record) isLoaded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loaded
}

// write patches the annotation.
func (r *Record) write(ctx context.Context) error {
	n, err := r.nodes.Lister().Get(r.node)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("record egress addresses: node %s is not known yet", r.node)
	}
	if err != nil {
		return fmt.Errorf("record egress addresses: %w", err)
	}
	r.mu.Lock()
	next := r.next()
	before := slices.SortedFunc(maps.Keys(r.known), netip.Addr.Compare)
	r.mu.Unlock()
	// The node that was read may be older than the last write.
	have := n.DeepCopy()
	delete(have.Annotations, kube.AnnotationEgressIPAddresses)
	if len(before) > 0 {
		if have.Annotations == nil {
			have.Annotations = map[string]string{}
		}
		have.Annotations[kube.AnnotationEgressIPAddresses] = kube.FormatEgressIPAddresses(before)
	}
	var value *string
	if len(next) > 0 {
		value = kube.Value(kube.FormatEgressIPAddresses(slices.SortedFunc(maps.Keys(next), netip.Addr.Compare)))
	}
	err = kube.PatchNode(ctx, r.kube, have, kube.Metadata{Annotations: map[string]*string{kube.AnnotationEgressIPAddresses: value}})
	if err != nil {
		return fmt.Errorf("record egress addresses: %w", err)
	}
	r.mu.Lock()
	r.known = next
	r.mu.Unlock()
	return nil
}
