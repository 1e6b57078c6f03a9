// Package audit records who used which egress address, and answers questions from these records: which node had an
// address, and which pods left the cluster with it.
//
// A Recorder is given the state that the leader has found or written, by object and by pod, and writes the
// differences as Records, one JSON object per line. A Timeline combines the records of one or several masters.
//
// Invariants. A change is recorded once, by the leader that made it. A leader does not know what the previous one
// has recorded, so it first states what it finds, and then that the statement is complete: Timeline compares the
// statements to detect whatever changed in between. Each file starts with the same kind of statement, so that it
// can be read without the files before it. A record is identified by leader, term and sequence, so that duplicates
// and missing records are detected.
//
// Callers: the masters of EgressIP and EgressService feed the Recorder, app creates it, and the command "ovnkube
// egress history" reads the records. Package auditfile writes the files.
package audit
