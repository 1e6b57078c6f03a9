// Package health determines which nodes can be reached over the cluster network.
//
// One goroutine per node probes all its management addresses, every quarter of the total timeout;
// an answer of either family is enough. A node that has not answered for the total timeout is dead,
// so death is detected within the timeout plus one probe interval. Until the first answer or the
// first full timeout without one, a node's state is unknown.
//
// Silence counts only while the prober was really listening. If the prober itself was suspended or
// could not send, the time starts again, so that a master that was stopped for a while does not
// declare every node dead when it resumes. If more than half of the nodes fall silent at once, the
// prober is probably cut off itself, and a node is declared dead only if a second opinion confirms
// it; without one none is: there would be no node to take over. The node on which the master runs
// is not counted, because a master always hears that one.
//
// Invariants: no lock is held while probing or while subscribers are called; a subscriber is called
// after every change of the state of a node, and reads the state itself. Callers: health/master
// sets the targets; the egress features subscribe.
package health
