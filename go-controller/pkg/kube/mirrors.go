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
			if o.Continue == "" {
				m.beginList()
			}
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
	started map[string]*corev1.Pod // those that the kubelet has reported as started, by key
	listed  map[string]bool        // the keys in the pages of the current list
	version string                 // of the latest event; a delayed deletion event must not have an older one
}

func newMirrors() *mirrors {
	return &mirrors{absent: map[string]absent{}, started: map[string]*corev1.Pod{}, listed: map[string]bool{}}
}

// absent is a deleted mirror pod.
type absent struct {
	pod   *corev1.Pod
	until time.Time
}

// beginList is called before the first page of a list.
func (m *mirrors) beginList() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.listed)
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
		m.listed[PodKey(&page.Items[i])] = true
	}
	if page.Continue != "" {
		return
	}
	m.version = page.ResourceVersion
	m.miss(m.listed)
	clear(m.listed)
	for _, a := range m.absent {
		page.Items = append(page.Items, *a.pod.DeepCopy())
	}
}

// miss records the mirror pods that are not present any more, although no event reported their deletion: it was missed
// between two watches, as after a restart of the API server; mu is held.
func (m *mirrors) miss(present map[string]bool) {
	for key, p := range m.started {
		if _, known := m.absent[key]; known || present[key] {
			continue
		}
		if finished(p) {
			delete(m.started, key)
			continue
		}
		m.absent[key] = absent{p, time.Now().Add(MirrorGrace)}
	}
}

// initial handles an event of a watch that starts with all existing objects, and notes which are present. It reports
// whether more of them follow; if not, it returns the events of the absent mirror pods.
func (m *mirrors) initial(e watch.Event, present map[string]bool) (absents []watch.Event, more bool) {
	p, ok := e.Object.(*corev1.Pod)
	switch {
	case !ok:
		return nil, true
	case e.Type != watch.Bookmark:
		present[PodKey(p)] = true
		return nil, true
	case p.Annotations[metav1.InitialEventsAnnotationKey] != "true":
		return nil, true
	}
	m.mu.Lock()
	m.version = p.ResourceVersion
	m.miss(present)
	m.mu.Unlock()
	return m.events(watch.Added, func(absent) bool { return true }), false
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
		present := map[string]bool{}
		for {
			due, stop := m.timer()
			var more bool
			select {
			case e, ok := <-w.ResultChan():
				if ok && initial {
					var absents []watch.Event
					absents, initial = m.initial(e, present)
					ok = send(absents...)
				}
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
	if e.Type != watch.Deleted || !IsMirror(p) || finished(p) || !m.isOf(key, p) {
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
	switch {
	case !IsMirror(p):
		delete(m.started, PodKey(p))
	case p.Status.StartTime != nil:
		p = p.DeepCopy() // receivers of the event may reduce it, and a page of a list is large
		p.ManagedFields = nil
		m.started[PodKey(p)] = p
	}
}

// isOf reports whether a pod is a mirror pod of the static pod that has started with a key; mu is held.
func (m *mirrors) isOf(key string, p *corev1.Pod) bool {
	s, ok := m.started[key]
	return ok && IsMirror(p) && PodUID(s) == PodUID(p)
}

// known returns a pod completed with its known status; mu is held. A recreated mirror pod has no status
// at first, while the static pod keeps running.
func (m *mirrors) known(p *corev1.Pod) *corev1.Pod {
	if key := PodKey(p); p.Status.StartTime == nil && m.isOf(key, p) {
		p = p.DeepCopy()
		p.Status = *m.started[key].Status.DeepCopy()
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
