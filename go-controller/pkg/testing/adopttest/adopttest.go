// Package adopttest makes the rows of a master look like those of another implementation, so that tests can
// have "ovnkube adopt" take them over.
package adopttest

import "github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbraw"

// ownerKeys are the external_ids by which a master recognizes its rows.
var ownerKeys = []any{"set", []any{"k8s.ovn.org/owner-controller", "k8s.ovn.org/owner-type", "k8s.ovn.org/name", "k8s.ovn.org/id"}}

// sharedPriorities are the priorities of policies that another implementation has, too.
var sharedPriorities = []int{1004, 501, 101, 100}

// ownTypes are the types of owners whose policies at a priority only ovnkube has: external gateways have some at
// the priority of EgressIPs.
var ownTypes = map[int]string{100: "externalroute"}

// Disown returns the operations of one transaction in the northbound database that removes the ownership marks
// from the rows that another implementation has, too.
func Disown() (ops []ovsdbraw.Op) {
	disown := func(table string, where ...any) {
		where = append([]any{[]any{"external_ids", "includes", []any{"map", []any{[]any{"k8s.ovn.org/owner-controller", "ovnkube"}}}}}, where...)
		ops = append(ops, ovsdbraw.Op{"op": "mutate", "table": table, "where": where, "mutations": []any{[]any{"external_ids", "delete", ownerKeys}}})
	}
	for _, table := range []string{
		"Logical_Router", "Logical_Switch", "Logical_Router_Port", "Logical_Switch_Port", "Gateway_Chassis", "Logical_Router_Static_Route", "NAT", "BFD",
		"Chassis_Template_Var",
	} {
		disown(table)
	}
	disown("Load_Balancer", []any{"name", "!=", "Service_local"}) // only ovnkube has this one
	for _, priority := range sharedPriorities {
		disown("Logical_Router_Policy", []any{"priority", "==", priority},
			[]any{"external_ids", "excludes", []any{"map", []any{[]any{"k8s.ovn.org/owner-type", ownTypes[priority]}}}})
	}
	return ops
}
