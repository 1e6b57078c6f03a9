package openflow

import (
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// TestAddedTwice: a flow that is added although it is wanted already is gone once it is removed. A contributor
// adds it again after an attempt in which the driver got neither its removal nor its addition.
func TestAddedTwice(t *testing.T) {
	const f, second, other host.Flow = "priority=5,ip,actions=drop", "priority=5,ip,actions=NORMAL", "priority=6,ip,actions=drop"
	for what, c := range map[string]*contribution{
		"first":              newContribution([]host.Flow{f, other}),
		"second":             newContribution([]host.Flow{second, f, other}),
		"twice in the whole": newContribution([]host.Flow{f, f, other}),
	} {
		c.change(nil, []host.Flow{f})
		c.change([]host.Flow{second}, nil)
		if changed := c.change([]host.Flow{f}, nil); len(changed) != 1 || !slices.Equal(c.flows(), []host.Flow{other}) {
			t.Errorf("%s: wants %q after a change of %v", what, c.flows(), changed)
		}
	}
}
