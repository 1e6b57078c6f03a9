package plane

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbraw"
)

// ownerKeys are the external_ids by which a master recognizes its rows.
var ownerKeys = []any{"set", []any{"k8s.ovn.org/owner-controller", "k8s.ovn.org/owner-type", "k8s.ovn.org/name", "k8s.ovn.org/id"}}

// sharedPriorities are the priorities of policies that another implementation has, too.
var sharedPriorities = []int{1004, 501, 101, 100}

// Estrange removes the ownership marks from the rows that another implementation has, too,
// and returns the number of these rows.
func (p *Plane) Estrange(ctx context.Context) (int, error) {
	c, err := p.Dial(ctx, Northbound, nil)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var ops []ovsdbraw.Op
	estrange := func(table string, where ...any) {
		where = append([]any{[]any{"external_ids", "includes", []any{"map", []any{[]any{"k8s.ovn.org/owner-controller", "ovnkube"}}}}}, where...)
		ops = append(ops, ovsdbraw.Op{"op": "mutate", "table": table, "where": where, "mutations": []any{[]any{"external_ids", "delete", ownerKeys}}})
	}
	for _, table := range []string{
		"Logical_Router", "Logical_Switch", "Logical_Router_Port", "Logical_Switch_Port", "Gateway_Chassis", "Logical_Router_Static_Route", "NAT", "BFD",
		"Chassis_Template_Var",
	} {
		estrange(table)
	}
	estrange("Load_Balancer", []any{"name", "!=", "Service_local"}) // only ovnkube has this one
	for _, priority := range sharedPriorities {
		estrange("Logical_Router_Policy", []any{"priority", "==", priority})
	}
	outcomes, err := c.Transact(ctx, Northbound, ops...)
	n := 0
	for _, o := range outcomes {
		n += o.Count
	}
	return n, err
}

// Adopt runs "ovnkube adopt", which takes over the rows that it understands, and returns its output.
func (p *Plane) Adopt(ctx context.Context) (string, error) {
	text, err := exec.CommandContext(ctx, p.config.Ovnkube, append([]string{"adopt", "--yes"}, p.settings()...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ovnkube adopt: %w: %s", err, text)
	}
	return string(text), nil
}
