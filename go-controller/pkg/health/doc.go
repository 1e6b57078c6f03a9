// Package health tells which nodes can be reached over the cluster network.
//
// One goroutine a node probes all its management addresses, every quarter of
// the total timeout; an answer of any family is an answer. A node that has not
// answered for the total timeout is dead, so death is seen within the timeout and
// one probe interval. Until the first answer or the first full silence a node's
// state is unknown.
//
// Silence counts only while we were really listening. Where the prober itself
// stood still or could not send, the time starts again, so that a master that was
// stopped for a while does not declare every node dead when it wakes. Where every
// node falls silent at once, the prober is cut off and no node is declared dead:
// there would be none to take over. So the only node of a cluster never is; a
// master on a node always hears that one.
//
// Invariants: no lock is held while probing or while subscribers are called; a
// subscriber sees every change of the state of a node, and reads the state
// itself. Callers: health/master feeds the targets; the egress features subscribe.
package health
