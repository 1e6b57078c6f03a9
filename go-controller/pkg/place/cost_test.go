package place

import (
	"fmt"
	"runtime"
	"testing"
)

// TestCostOfOpenClaims: the cost of explaining why a claim has no node, and of choosing
// among many, does not grow with the number of nodes like a list of their names.
func TestCostOfOpenClaims(t *testing.T) {
	const claims, limit = 500, 4 << 10 // bytes per claim
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("node-%03d", i))
	}
	for name, allow := range map[string]func(Node) Reason{"none may": only(), "all may": nil} {
		t.Run(name, func(t *testing.T) {
			var open []Claim
			for i := range claims {
				open = append(open, Claim{Key: fmt.Sprintf("claim-%d", i), Allow: allow})
			}
			nodes := alive(names...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := Assign(nodes, open)
			runtime.ReadMemStats(&after)
			if each := (after.TotalAlloc - before.TotalAlloc) / claims; each > limit {
				t.Errorf("%d bytes for each claim, want at most %d", each, limit)
			}
			if r := got["claim-7"]; r.Node == "" && r.Explain() != "node-000, node-001, node-002, node-003, node-004, ...: not wanted" {
				t.Errorf("explained as %q", r.Explain())
			}
		})
	}
}
