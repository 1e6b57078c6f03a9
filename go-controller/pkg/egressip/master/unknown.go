package master

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// unknownTimeout is how long the start of pods waits for what decides whether an EgressIP selects them: the API server
// that has the pods usually has the rest, too. If it does not, most pods are better off without an EgressIP than not at all.
const unknownTimeout = 10 * time.Second

// unknown records since when something is unknown that decides which EgressIPs select pods. The zero value is ready
// to use.
type unknown struct {
	mu    sync.Mutex
	since map[string]time.Time
	late  map[string]bool // those that nobody waits for any more
}

// wait reports whether pods are still to wait for something that is unknown.
func (u *unknown) wait(what string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, ok := u.since[what]
	if !ok {
		if u.since == nil {
			u.since, u.late = map[string]time.Time{}, map[string]bool{}
		}
		since = time.Now()
		u.since[what] = since
	}
	if time.Since(since) < unknownTimeout {
		return true
	}
	if !u.late[what] {
		u.late[what] = true
		klog.InfoS("Pods no longer wait until it is known whether an EgressIP selects them", "unknown", what, "since", since)
	}
	return false
}

// known records that something is not unknown any more.
func (u *unknown) known(what string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.since, what)
	delete(u.late, what)
}

// knows fails while it is not known which EgressIPs select a pod, but only for a limited time.
func (c *Controller) knows(p *corev1.Pod) error {
	what := ""
	switch _, err := c.deps.Namespaces.Lister().Get(p.Namespace); {
	case !c.deps.EgressIPs.Informer().HasSynced():
		what = "EgressIPs"
	case !c.deps.Namespaces.Informer().HasSynced():
		what = "namespaces"
	case err != nil:
		what = namespaceKey(p.Namespace)
	}
	if what == "" || !c.unknown.wait(what) {
		return nil
	}
	return fmt.Errorf("decide whether pod %s/%s waits for an EgressIP: %s not known yet", p.Namespace, p.Name, what)
}

// namespaceKey is the name under which a namespace is unknown.
func namespaceKey(name string) string { return "namespace " + name }
