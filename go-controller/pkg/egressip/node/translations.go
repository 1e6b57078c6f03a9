package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const (
	// translationsKey is the only key of the translations queue.
	translationsKey = "translations"
	// rest is the pause between passes over all connections, as a multiple of the duration of the
	// last pass; maxRest is its maximum.
	rest    = 10
	maxRest = time.Second
)

// translations makes connections of pods that the gateway router of this node translates use
// the current address of the pods: when a translation is added, changed or removed,
// connections with an outdated one are forgotten, and further packets are translated
// like those of a new connection. They also tell which addresses OVN still translates to.
type translations struct {
	c     *Controller
	queue *queue.Controller

	mu    sync.Mutex
	known bool // now has been read
	now   []host.Translation
}

func newTranslations(c *Controller) *translations {
	t := &translations{c: c}
	t.queue = queue.New("egressip-translations", t.reconcile)
	return t
}

// waitForHosts makes the queue wait for the addresses of nodes and API servers: without them, connections to these
// would look as if they left the cluster.
func (t *translations) waitForHosts() error {
	return t.c.deps.Addresses.WatchHosts(t.queue, func() []string { return nil })
}

// Run runs until ctx is done. It starts once the node knows which addresses it holds.
func (t *translations) Run(ctx context.Context) error {
	go func() {
		if waits.Until(ctx, t.c.queue.Attempted(), waits.Wait{Part: "egressip-translations", For: "every EgressIP to be tried once"}) {
			t.c.deps.FollowTranslations(ctx, t.changed)
		}
	}()
	return t.queue.Run(ctx, 1)
}

func (t *translations) changed(all []host.Translation) {
	t.mu.Lock()
	same := slices.Equal(all, t.now)
	t.now, t.known = all, true
	t.mu.Unlock()
	if !same {
		t.queue.Enqueue(translationsKey)
	}
}

// to returns those of the addresses that OVN on this node translates to.
func (t *translations) to(addrs []netip.Addr) ([]netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		return nil, errors.New("the translations have not been read yet")
	}
	used := map[netip.Addr]bool{}
	for _, each := range t.now {
		used[each.To] = true
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return !used[a] }), nil
}

// inForce returns the translations that OVN makes now.
func (t *translations) inForce(node topology.Node) egressip.Translations {
	t.mu.Lock()
	all := t.now
	t.mu.Unlock()
	return egressip.NewTranslations(all, node, t.c.allAnswering(), t.c.deps.Addresses.Hosts(), t.c.deps.NodeLocal)
}

func (t *translations) reconcile(ctx context.Context, _ string) error {
	node, err := t.c.self()
	if err != nil {
		return err
	}
	began := time.Now()
	n, err := t.c.deps.FlushTranslations(ctx, func() func(src, dst, to netip.Addr) bool { return t.inForce(node).Stale })
	if err != nil {
		return fmt.Errorf("forget connections that keep an earlier source address: %w", err)
	}
	if n > 0 {
		klog.V(2).InfoS("Connections deleted that kept an earlier source address", "count", n)
	}
	select { // with many connections, leave the switch time for other work
	case <-time.After(min(rest*time.Since(began), maxRest)):
	case <-ctx.Done():
	}
	return nil
}
