// Package externalroute plans external gateways: which gateways the pods of a
// namespace use, by AdminPolicyBasedExternalRoutes and by annotations, and the
// northbound rows that make them do so.
//
// It is pure and works in two steps. Decide turns a Snapshot of everything that
// names gateways into a Plan: the hops of each namespace, and the decision about
// each policy. NodeRows turns a Plan and the pods of one node
// into the rows of that node.
//
// Invariants:
//
//   - A namespace has a hop at most once, whoever names it. If two policies
//     differ in the options of a hop, the older one takes precedence; a policy takes
//     precedence over an annotation.
//   - A BFD session belongs to a node and a hop: its timers are those of the
//     oldest policy that requests BFD for the hop, whatever namespaces it selects.
//   - Translation depends on a pod and an address family: NAT does not see
//     the hop that a packet takes.
//   - All rows of a node have one owner, {externalroute, node}, and are written
//     in one transaction.
//   - Unusable input is reported in a condition and left out; the rest works.
//
// Callers: the controllers in master/ and in node/, which forgets connections of removed hops.
package externalroute
