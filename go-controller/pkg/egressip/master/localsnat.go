package master

import (
	"context"
	"maps"
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// With a translation for each pod on its node's gateway router, that translation yields to the
// one of the EgressIP (nb.Row.Yields). After a restart the writer does not know these translations
// until their planners have handed them over; until then those of the EgressIP stay.

// keepLocalSNAT keeps translations of a pod on its own node that are to be removed, as long as
// the writer does not know the translations that would replace them. It tells whether there are
// any; then returnLocalSNATs enqueues the pod later.
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

// returnLocalSNATs enqueues the pods of keepLocalSNAT once the writer knows the translations
// that replace those that were kept.
func (c *Controller) returnLocalSNATs(ctx context.Context) {
	if c.deps.LocalSNATs == nil || !waits.Until(ctx, c.deps.LocalSNATs(), waits.Wait{Part: "egressip-pods", For: "every pod's own translation to be told to the writer"}) {
		return
	}
	c.pods.Enqueue(c.podStates.keptPods()...)
}
