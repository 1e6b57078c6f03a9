// Package audit records who was behind which egress address, and answers from such
// records: which node had an address, and which pods left the cluster with it.
//
// A Recorder is told the state that the leader has found or written, object by object
// and pod by pod, and writes the differences as Records, JSON lines. A Timeline is what
// the records of one or several masters say together.
//
// Invariants. A change is recorded once, by the leader that made it. A leader does not
// know what the one before has recorded, so it first states what it finds, and then that
// this was all: whatever changed in between is seen by the comparison, which Timeline
// makes. The same statement is at the head of each file, so that every file can be read
// without those before it. A record is identified by leader, term and sequence: copies are
// recognized, and missing ones, too.
//
// Callers: the masters of EgressIP and EgressService tell the Recorder, app makes it, the
// command "ovnkube egress history" reads. Package auditfile writes the files.
package audit
