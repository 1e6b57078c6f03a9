// Package externalroute plans external gateways: which gateways the pods of a
// namespace use, by AdminPolicyBasedExternalRoutes and by annotations, and the
// northbound rows that make them do so.
//
// It is pure and works in two steps. Decide turns a Snapshot of everything that
// names gateways into a Plan: the hops of each namespace, and of each policy
// what there is to say about it. NodeRows turns a Plan and the pods of one node
// into the rows of that node.
//
// Invariants:
//
//   - A namespace has a hop at most once, whoever names it. Of two policies that
//     differ in the options of a hop the older decides; a policy decides before
//     an annotation.
//   - A BFD session is a matter of a node and a hop: its timers are those of the
//     oldest policy that asks for BFD on the hop, whatever namespaces it selects.
//   - Translation is a matter of a pod and an address family: NAT does not see
//     the hop that a packet takes.
//   - Everything of a node has one owner, {externalroute, node}, and is written
//     in one transaction.
//   - What cannot be used is told in a condition and left out; the rest works.
//
// Callers: the glue in master/; node/ forgets connections of hops that left.
package externalroute
