package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// errPodGone is the cause if a request ends because its pod was deleted or replaced.
var errPodGone = errors.New("the pod is gone")

// getInterval is how often the API server is asked about a pod that the informer does not
// have, or not with that UID.
const getInterval = time.Second

// pods looks up pods and notifies those that wait for changes of a pod.
type pods struct {
	kube     kubernetes.Interface
	lister   corelisters.PodLister
	informer cache.SharedIndexInformer
	ports    Ports
	subnets  func() []netip.Prefix
	limit    time.Duration // of an ADD

	mu      sync.Mutex // guards waiters
	waiters map[string]map[chan struct{}]struct{}
}

func newPods(deps Deps, limit time.Duration) (*pods, error) {
	p := &pods{limit: limit, kube: deps.Kube, lister: deps.Pods.Lister(), informer: deps.Pods.Informer(), ports: deps.Ports, subnets: deps.Subnets,
		waiters: map[string]map[chan struct{}]struct{}{}}
	p.ports.OnChange(func(port string) {
		// Names of namespaces and pods contain no "_".
		if namespace, name, ok := strings.Cut(port, "_"); ok {
			p.wakeKey(namespace + "/" + name)
		}
	})
	_, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    p.wake,
		UpdateFunc: func(_, obj any) { p.wake(obj) },
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			p.wake(obj)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return p, nil
}

func (p *pods) wake(obj any) {
	if pod, ok := obj.(*corev1.Pod); ok {
		p.wakeKey(kube.PodKey(pod))
	}
}

func (p *pods) wakeKey(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.waiters[key] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// listen returns a channel that gets a value after each change of a pod.
func (p *pods) listen(key string) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiters[key] == nil {
		p.waiters[key] = map[chan struct{}]struct{}{}
	}
	p.waiters[key][c] = struct{}{}
	return c, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiters[key], c)
		if len(p.waiters[key]) == 0 {
			delete(p.waiters, key)
		}
	}
}

// is reports whether pod is the one with the runtime's UID. For a static pod, the kubelet
// uses another UID than the API server: that of its manifest.
func is(pod *corev1.Pod, uid string) bool {
	return uid == "" || string(pod.UID) == uid || pod.Annotations[corev1.MirrorPodAnnotationKey] == uid ||
		pod.Annotations["kubernetes.io/config.hash"] == uid
}

// network waits until the master has assigned the pod its network. The error wraps
// errPodGone if the pod does not exist or no longer exists.
func (p *pods) network(ctx context.Context, who cni.Pod) (*corev1.Pod, topology.PodNetwork, error) {
	var network topology.PodNetwork
	pod, err := p.await(ctx, who, "the addresses", func(pod *corev1.Pod) (reason string) {
		network, reason = p.given(pod)
		return reason
	})
	return pod, network, err
}

// given returns the network of a pod, and why it is not known, "" if it is. The logical
// port is authoritative, since users can write anything to the annotation. If both agree,
// the master has finished its assignment.
func (p *pods) given(pod *corev1.Pod) (topology.PodNetwork, string) {
	announced, ok, err := kube.PodNetwork(pod)
	switch {
	case err != nil:
		return topology.PodNetwork{}, fmt.Sprintf("%v: is an ovnkube master running, which puts it right?", err)
	case !ok:
		return topology.PodNetwork{}, "it has no annotation " + kube.AnnotationPodNetworks + " yet: is an ovnkube master running?"
	}
	name := topology.PodPort(pod.Namespace, pod.Name)
	port, ok := p.ports.Port(name)
	if !ok || port.UID != string(kube.PodUID(pod)) {
		if err := p.ports.Err(); err != nil {
			return topology.PodNetwork{}, fmt.Sprintf("the southbound database cannot be queried for logical port %s: %v", name, err)
		}
		return topology.PodNetwork{}, fmt.Sprintf(
			"logical port %s of this pod is not in the southbound database yet: are an ovnkube master and ovn-northd running?", name)
	}
	subnets := p.subnets()
	network, ok := port.Network(subnets)
	switch {
	case !ok:
		return topology.PodNetwork{}, fmt.Sprintf("logical port %s has %v, which is not one address of a subnet of this node, %v",
			name, port.Addrs, subnets)
	case !announced.Same(network):
		return topology.PodNetwork{}, fmt.Sprintf(
			"annotation %s says %s with %v, but the pod has been given %s with %v: is an ovnkube master running, which puts it right?",
			kube.AnnotationPodNetworks, announced.MAC, announced.Addrs, network.MAC, network.Addrs)
	}
	return network, ""
}

// egress waits until the policies of an EgressIP that selects the pod have taken effect, so
// that even the pod's first packets leave with the egress address.
func (p *pods) egress(ctx context.Context, who cni.Pod) error {
	_, err := p.await(ctx, who, "the egress policies", func(pod *corev1.Pod) string {
		if by, pending := pod.Annotations[kube.AnnotationEgressPending]; pending {
			return fmt.Sprintf("those of EgressIP %s are not in force yet: is an ovnkube master running?", by)
		}
		return ""
	})
	return err
}

// unchanged returns an error if the pod is not the one that was attached, or has been
// assigned another network since: only another ADD can apply that. A new mirror of a static
// pod counts as another pod too: it lacks the annotation that egress checks.
func (p *pods) unchanged(ctx context.Context, who cni.Pod, attached *corev1.Pod, network topology.PodNetwork) error {
	now, next, err := p.network(ctx, who)
	switch {
	case err != nil:
		return err
	case now.UID != attached.UID:
		return types.NewError(cni.CodeTryAgain, fmt.Sprintf("pod %s was made anew while it was attached", who),
			fmt.Sprintf("its uid is %s now, not %s", now.UID, attached.UID))
	case !next.Same(network):
		return types.NewError(cni.CodeTryAgain, fmt.Sprintf("pod %s has been given another network while it was attached", who),
			fmt.Sprintf("%s with %v by %v now, not %s with %v by %v",
				next.MAC, next.Addrs, next.Gateways, network.MAC, network.Addrs, network.Gateways))
	}
	return nil
}

// await waits until missing returns no reason to wait for a pod.
func (p *pods) await(ctx context.Context, who cni.Pod, what string, missing func(*corev1.Pod) (reason string)) (*corev1.Pod, error) {
	changed, stop := p.listen(who.String())
	defer stop()
	var lastGet time.Time
	var wait *waits.Begun
	defer func() { wait.End() }()
	for {
		pod, err := p.lister.Pods(who.Namespace).Get(who.Name)
		if (err != nil || !is(pod, who.UID)) && time.Since(lastGet) >= getInterval {
			lastGet = time.Now()
			if pod, err = p.get(ctx, who); errors.Is(err, errPodGone) {
				return nil, err
			}
		}
		reason := "the pod is not known here yet"
		if err == nil && is(pod, who.UID) {
			if reason = missing(pod); reason == "" {
				return pod, nil
			}
		}
		if wait == nil {
			wait = waits.Begin(waits.Wait{Part: part, Object: who.String(), Limit: p.limit})
		}
		wait.For(what + ": " + reason)
		select {
		case <-changed:
		case <-time.After(getInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s of pod %s: %w (%s)", what, who, context.Cause(ctx), reason)
		}
	}
}

// get reads a pod from the API server.
func (p *pods) get(ctx context.Context, who cni.Pod) (*corev1.Pod, error) {
	pod, err := p.kube.CoreV1().Pods(who.Namespace).Get(ctx, who.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("pod %s: %w", who, errPodGone)
	case err != nil:
		return nil, fmt.Errorf("read pod %s: %w", who, err)
	case !is(pod, who.UID):
		return nil, fmt.Errorf("pod %s: %w: it has uid %s now, not %s", who, errPodGone, pod.UID, who.UID)
	}
	return pod, nil
}

// whileThere returns a context that ends when the pod is deleted, starts to terminate or is
// replaced.
func (p *pods) whileThere(ctx context.Context, who cni.Pod) (context.Context, func()) {
	inner, cancel := context.WithCancelCause(ctx)
	changed, stop := p.listen(who.String())
	seen := false
	look := func() {
		pod, err := p.lister.Pods(who.Namespace).Get(who.Name)
		switch {
		case err == nil && is(pod, who.UID):
			seen = true
			if pod.DeletionTimestamp != nil {
				cancel(fmt.Errorf("%w: it is being deleted", errPodGone))
			}
		case seen: // before, the informer may just be late
			cancel(errPodGone)
		}
	}
	go func() {
		defer stop()
		look()
		for {
			select {
			case <-changed:
				look()
			case <-inner.Done():
				return
			}
		}
	}()
	return inner, func() { cancel(nil) }
}

// gone reports whether the pod with this UID in the API server is gone for good.
func (p *pods) gone(ctx context.Context, who cni.Pod) (bool, error) {
	pod, err := p.lister.Pods(who.Namespace).Get(who.Name)
	if err == nil && string(kube.PodUID(pod)) == who.UID {
		return false, nil
	}
	if _, err = p.get(ctx, who); errors.Is(err, errPodGone) {
		return true, nil
	}
	return false, err
}
