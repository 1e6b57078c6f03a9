package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// maxNamed limits the number of keys that a wait names.
const maxNamed = 10

// waits returns what the start of this controller is waiting for.
func (c *Controller) waits() []waits.Wait {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := waits.Wait{Part: c.name, Since: c.started}
	switch {
	case !c.seeded:
		left := len(slices.DeleteFunc(slices.Clone(c.informersSynced), func(synced cache.InformerSynced) bool { return synced() }))
		// The client reports which kind the API server does not list, and why.
		wait.For = fmt.Sprintf("the first lists of %d of %d kinds", left, len(c.informersSynced))
	case len(c.untried) > 0:
		wait.For, wait.Limit, wait.Reason = "start-up objects to be tried once: "+names(c.untried), c.stall, waits.ReasonStart
	case len(c.unsynced) > 0: // an Event reports each failure
		wait.For = "start-up objects to succeed, before leftovers are deleted: " + names(c.unsynced)
	default:
		return nil
	}
	return []waits.Wait{wait}
}

// Informed waits until informers have their initial objects. It returns false if ctx ends first.
func Informed(ctx context.Context, part string, synced ...cache.InformerSynced) bool {
	defer waits.Begin(waits.Wait{Part: part, For: fmt.Sprintf("the first lists of %d kinds", len(synced))}).End()
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}

func names(keys map[string]struct{}) string {
	all := slices.Sorted(maps.Keys(keys))
	more := ""
	if n := len(all) - maxNamed; n > 0 {
		all, more = all[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(all, ", ") + more
}
