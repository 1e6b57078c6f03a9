// Package place decides which node serves which claim. It is free of I/O and state: the
// same nodes and claims give the same result, in any order, and the only memory is the node
// that a claim prefers.
//
// Invariants: a claim stays on its node as long as the node may keep it; claims of one
// group never share a node; other claims go to the least loaded node that may have them. A
// node that comes back gets only unplaced claims and takes none from other nodes. The
// result for a claim without a node has the reason why each node was rejected.
//
// Callers: the planners of the egress features.
package place
