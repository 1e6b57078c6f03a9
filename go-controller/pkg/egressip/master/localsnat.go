package master

import (
	"context"
	"maps"
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// Where each pod has a translation of its own on its node's gateway router, that yields to
// ours (nb.Row.Yields). After a start the writer does not know it before those who plan it
// have told: until then ours stay.

// keepLocalSNAT keeps, of a pod's translations on its own node, those that are to go, as long
// as it is not known what there is without them; it tells whether there are any. The pod's
// key comes back then.
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

// returnLocalSNATs has the pods planned again whose translations were kept, once it is known
// what they have without them.
func (c *Controller) returnLocalSNATs(ctx context.Context) {
	if c.deps.LocalSNATs == nil || !waits.Until(ctx, c.deps.LocalSNATs(), waits.Wait{Part: "egressip-pods", For: "every pod's own translation to be told to the writer"}) {
		return
	}
	c.pods.Enqueue(c.podStates.keptPods()...)
}
