package master

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Pending returns the value of the pending annotation for a pod that is about to get its
// addresses: the name of its EgressIP, or "" if the pod need not wait.
func (c *Controller) Pending(p *corev1.Pod) string {
	keys := c.choose(p)
	if len(keys) == 0 || !c.mayDiffer(keys[0]) {
		return ""
	}
	c.podStates.pending(kube.PodKey(p), p.UID)
	return keys[0]
}

// mayDiffer reports whether an EgressIP changes how its pods' traffic leaves.
func (c *Controller) mayDiffer(key string) bool {
	d, ok := c.decisions.of(key)
	if !ok || len(d.Nodes()) > 0 {
		return true
	}
	e, err := c.deps.EgressIPs.Lister().Get(key)
	return err == nil && c.decode(e).DropWhenUnavailable
}

// Attach writes the rows of a pod's port and, in the same transaction, the rows that
// steer its egress traffic.
func (c *Controller) Attach(
	ctx context.Context, p *corev1.Pod, network topology.PodNetwork, owner nb.Owner, rows []nb.Row,
) (nb.Stats, error) {
	port := map[nb.Owner][]nb.Row{owner: rows}
	key := kube.PodKey(p)
	addrs := make([]netip.Addr, 0, len(network.Addrs))
	for _, a := range network.Addrs {
		addrs = append(addrs, a.Addr())
	}
	if len(c.choose(p)) == 0 {
		return c.port(ctx, key, port)
	}
	st, err := c.podStates.lock(ctx, key)
	if err != nil {
		return nb.Stats{}, err
	}
	w := newWork()
	if c.planPod(w, key, st, p, addrs); len(w.want) == 0 {
		c.unlock(key)
		return c.port(ctx, key, port)
	}
	maps.Copy(w.want, port)
	stats, errs := c.apply(ctx, w)
	return stats, errors.Join(slices.Collect(maps.Values(errs))...)
}

// port writes only the rows of a port, and then enqueues the pod.
func (c *Controller) port(ctx context.Context, key string, port map[nb.Owner][]nb.Row) (nb.Stats, error) {
	stats, errs := c.deps.Writer.ApplyAll(ctx, port)
	if !stats.Zero() {
		c.pods.Enqueue(key)
	}
	return stats, errors.Join(slices.Collect(maps.Values(errs))...)
}
