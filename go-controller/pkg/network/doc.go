// Package network plans the base network: which subnets and join addresses a node gets, and
// the northbound rows of the cluster router, the join switch, the node switches and the
// gateway routers.
//
// It is free of I/O and state: the same nodes result in the same rows, in whatever order
// they were added. The only state is in the nodes' annotations, which are passed in as
// Claims and topology.Nodes. Invariants:
//
//   - Every row of a node belongs to owner {network, <node>}; rows that exist once, and the
//     MAC bindings of all gateway routers on the cluster router's join port, belong to
//     owner {network, ""}.
//   - A node is planned as far as it is known: with subnets it gets a switch, with a
//     gateway it gets a gateway router. Nothing is planned for what is unknown.
//   - No two nodes are ever assigned overlapping subnets or the same join address; if
//     claims collide, the older node keeps its claim. Nor are those of a node that is gone, as long as
//     its rows exist, unless a node of the same name has come back: OVN could deliver what is for one
//     node to the other.
//
// Caller: network/master, the glue that reads nodes and applies rows.
package network
