// Package network plans the base network: which subnets and join addresses a
// node gets, and the northbound rows of the cluster router, the join switch,
// the node switches and the gateway routers.
//
// It is pure: the same nodes give the same rows, in whatever order they came.
// The only memory is in the nodes' annotations, which arrive here as Claims and
// topology.Nodes. Invariants:
//
//   - Every row of a node belongs to owner {network, <node>}; rows that exist
//     once, and the MAC bindings of all gateway routers on the cluster router's
//     join port, belong to owner {network, ""}.
//   - A node is planned as far as it is known: subnets give it a switch, a
//     gateway gives it a gateway router. What is not known plans to nothing.
//   - No two nodes are ever assigned overlapping subnets or the same join
//     address; among claims that collide the older node keeps.
//
// Caller: network/master, the glue that reads nodes and applies rows.
package network
