package master

import (
	"context"
	"maps"
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// If each pod has its own translation on its node's gateway router, that translation yields to
// the EgressIP's (nb.Row.Yields). After a start the writer does not know the former until
// their controller has planned them: until then the EgressIPs' translations are kept.

// keepLocalSNAT keeps those of a pod's translations on its own node that are to be removed, as long
// as the translation that replaces them is unknown, and reports whether there are any. The pod's
// key is enqueued again later.
func (c *Controller) keepLocalSNAT(key, node string, now egressip.State, plan *egressip.Plan) (kept bool) {
	if _, gone := c.chassis(node); gone || c.deps.LocalSNATs == nil {
		return false
	}
	yielding := map[egressip.Site]netip.Addr{}
	for site, addr := range now.NATs {
		if _, ok := plan.Want.NATs[site]; !ok && site.Node == node {
			yielding[site] = addr
		}
	}
	if len(yielding) == 0 || !c.podStates.keepSNAT(key, c.deps.LocalSNATs()) {
		return false
	}
	maps.Copy(plan.Want.NATs, yielding)
	return true
}

// returnLocalSNATs enqueues the pods whose translations were kept, once their
// replacements are known.
func (c *Controller) returnLocalSNATs(ctx context.Context) {
	if c.deps.LocalSNATs == nil || !waits.Until(ctx, c.deps.LocalSNATs(), waits.Wait{Part: "egressip-pods", For: "every pod's own translation to be passed to the writer"}) {
		return
	}
	c.pods.Enqueue(c.podStates.keptPods()...)
}
