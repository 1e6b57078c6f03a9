package kube

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// MirrorGrace is how long a static pod counts as existing after its mirror pod was deleted. The static pod
// keeps running when somebody deletes its mirror pod, which the kubelet recreates:
// immediately after a graceful deletion, otherwise when it syncs the pod again, which it
// does within a minute and a half by default.
const MirrorGrace = 2 * time.Minute

// LateMirrors returns a factory whose pod informer reports the deletion of a mirror pod
// only after MirrorGrace. A mirror pod recreated before then is an update of the
// pod, with another object UID, and with the status of the previous mirror pod until the
// kubelet reports a new one. tweak is the tweak function of f; nil for none.
func LateMirrors(f informers.SharedInformerFactory, tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
	return podFactory{f, metav1.NamespaceAll, tweak}
}

// podFactory implements LateMirrors.
type podFactory struct {
	informers.SharedInformerFactory
	namespace string // of the pods to watch
	tweak     func(*metav1.ListOptions)
}

// Core implements informers.SharedInformerFactory.
func (f podFactory) Core() core.Interface { return core.New(f, metav1.NamespaceAll, f.tweak) }

// InformerFor implements informers.SharedInformerFactory.
func (f podFactory) InformerFor(obj runtime.Object, newInformer internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	if _, ok := obj.(*corev1.Pod); ok {
		newInformer = f.pods
	}
	return f.SharedInformerFactory.InformerFor(obj, newInformer)
}

func (f podFactory) pods(cs kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	pods, m := cs.CoreV1().Pods(f.namespace), newMirrors()
	options := func(o metav1.ListOptions) metav1.ListOptions {
		if f.tweak != nil {
			f.tweak(&o)
		}
		return o
	}
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := pods.List(ctx, options(o))
			if err == nil {
				m.list(list)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := pods.Watch(ctx, options(o))
			if err != nil {
				return nil, err
			}
			return m.watch(w, o.SendInitialEvents != nil && *o.SendInitialEvents), nil
		},
	}, &corev1.Pod{}, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// mirrors tracks deleted mirror pods across the lists and watches of
// an informer.
type mirrors struct {
	mu      sync.Mutex
	absent  map[string]absent
	started map[string]started // by key
	version string             // of the latest event; a delayed deletion event must not have an older one
}

func newMirrors() *mirrors {
	return &mirrors{absent: map[string]absent{}, started: map[string]started{}}
}

// started is a static pod that the kubelet has reported as started.
type started struct {
	uid    types.UID // of the pod
	status corev1.PodStatus
}

// absent is a deleted mirror pod.
type absent struct {
	pod   *corev1.Pod
	until time.Time
}

// list adds the absent mirror pods to the last page of a list, and forgets those that
// exist again.
func (m *mirrors) list(page *corev1.PodList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range page.Items {
		m.note(&page.Items[i])
		page.Items[i] = *m.known(&page.Items[i])
		delete(m.absent, PodKey(&page.Items[i]))
	}
	if page.Continue != "" {
		return
	}
	m.version = page.ResourceVersion
	for _, a := range m.absent {
		page.Items = append(page.Items, *a.pod.DeepCopy())
	}
}

// watch forwards the events of w, but delays deletions of mirror pods. A watch
// that starts with all existing objects starts with the absent mirror pods.
func (m *mirrors) watch(w watch.Interface, initial bool) watch.Interface {
	out := make(chan watch.Event)
	proxy := watch.NewProxyWatcher(out)
	go func() {
		defer close(out)
		defer w.Stop()
		send := func(events ...watch.Event) bool {
			for _, e := range events {
				select {
				case out <- e:
				case <-proxy.StopChan():
					return false
				}
			}
			return true
		}
		if initial && !send(m.events(watch.Added, func(absent) bool { return true })...) {
			return
		}
		for {
			due, stop := m.timer()
			var more bool
			select {
			case e, ok := <-w.ResultChan():
				if more = ok; ok && !m.withhold(&e) {
					more = send(e)
				}
			case now := <-due:
				// If the events are not received, the next watch sends them.
				over := func(a absent) bool { return !a.until.After(now) }
				if more = send(m.events(watch.Deleted, over)...); more {
					m.forget(over)
				}
			case <-proxy.StopChan():
				more = false
			}
			if stop(); !more {
				return
			}
		}
	}()
	return proxy
}

// withhold reports whether an event must not be forwarded now, and otherwise completes the status of its pod.
func (m *mirrors) withhold(e *watch.Event) bool {
	p, ok := e.Object.(*corev1.Pod)
	if !ok {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version = p.ResourceVersion
	key := PodKey(p)
	m.note(p)
	p = m.known(p)
	e.Object = p
	if e.Type != watch.Deleted || !IsMirror(p) || finished(p) || m.started[key].uid != PodUID(p) {
		delete(m.absent, key)
		if e.Type == watch.Deleted {
			delete(m.started, key)
		}
		return false
	}
	if was, ok := m.absent[key]; !ok || was.pod.UID != p.UID { // a watch may repeat the event
		m.absent[key] = absent{p, time.Now().Add(MirrorGrace)}
	}
	return true
}

// note records that a static pod has started; mu is held. Users who may create pods can create one with
// the annotation of a mirror pod that no kubelet runs, and its address would be kept after its deletion:
// therefore the status is checked, which only the kubelet writes and users do not.
func (m *mirrors) note(p *corev1.Pod) {
	if IsMirror(p) && p.Status.StartTime != nil {
		m.started[PodKey(p)] = started{PodUID(p), p.Status}
	}
}

// known returns a pod completed with its known status; mu is held. A recreated mirror pod has no status
// at first, while the static pod keeps running.
func (m *mirrors) known(p *corev1.Pod) *corev1.Pod {
	if s, ok := m.started[PodKey(p)]; ok && IsMirror(p) && p.Status.StartTime == nil && s.uid == PodUID(p) {
		p = p.DeepCopy()
		p.Status = *s.status.DeepCopy()
	}
	return p
}

// timer returns a channel that fires when the next absent mirror pod expires, and a function
// that stops the timer.
func (m *mirrors) timer() (<-chan time.Time, func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.absent) == 0 {
		return nil, func() {}
	}
	next := slices.MinFunc(slices.Collect(maps.Values(m.absent)), func(a, b absent) int { return a.until.Compare(b.until) })
	t := time.NewTimer(time.Until(next.until))
	return t.C, func() { t.Stop() }
}

// forget removes the absent mirror pods for which which returns true.
func (m *mirrors) forget(which func(absent) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.absent, func(key string, a absent) bool {
		if which(a) {
			delete(m.started, key)
		}
		return which(a)
	})
}

// events returns an event for each absent mirror pod for which which returns true.
func (m *mirrors) events(what watch.EventType, which func(absent) bool) (events []watch.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.absent {
		if which(a) {
			p := a.pod.DeepCopy()
			p.ResourceVersion = m.version
			events = append(events, watch.Event{Type: what, Object: p})
		}
	}
	return events
}
