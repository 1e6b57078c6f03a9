// Package place decides which node serves what. It is pure: the same nodes and
// claims give the same answer, in whatever order they come, and there is no
// memory but the node that a claim prefers.
//
// Invariants: a claim stays where it is as long as its node may keep it; claims
// of one group never share a node; the others go to the least loaded node that
// may take them. A node that comes back gets only what is unplaced: it steals
// nothing. A claim without a node carries the reason of each node's rejection.
//
// Callers: the planners of the egress features.
package place
