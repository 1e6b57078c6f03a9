package master

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// The rows of a pod match packets by the pod's address, and outlive the pod. Until they are gone, no other pod may
// have the address, whose packets would leave with the egress address of the former pod.

// OnPass registers a function that is called with the key of a pod after each pass over it. It must not block, and must be
// registered before Run.
func (c *Controller) OnPass(f func(pod string)) { c.onPass = append(c.onPass, f) }

// passed calls the functions of OnPass.
func (c *Controller) passed(keys []string) {
	for _, f := range c.onPass {
		for _, key := range keys {
			f(key)
		}
	}
}

// Uses reports whether any of the addresses is in the rows of a pod, "namespace/name", or of an earlier one of that name. It also
// returns true during a pass over the pod, which may have read the addresses of its port before that was removed; OnPass
// reports when to ask again.
func (c *Controller) Uses(key string, addrs []netip.Addr) bool {
	if c.podStates.isPlanning(key) {
		return true
	}
	used := c.used(key)
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return slices.Contains(used, a) })
}

// Used returns the addresses in the rows of all pods.
func (c *Controller) Used() map[string][]netip.Addr {
	used := map[string][]netip.Addr{}
	for _, key := range nb.Objects(c.deps.Writer, egressip.Feature) {
		used[key] = c.used(key)
	}
	return used
}

func (c *Controller) used(key string) []netip.Addr {
	return egressip.StateOf(c.deps.Writer.Rows(egressip.Owner(key))).Addrs()
}
