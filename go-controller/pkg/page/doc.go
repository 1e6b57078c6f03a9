// Package page serves the egress map as a web page: nodes with their addresses, objects
// by state, the timeline of moves, and explanations.
//
// The page asks for JSON, which has the schema of the verbs of "ovnkube egress". What is
// said is package explain's; here are the HTTP around it, a snapshot that is read anew
// when somebody asks and it has grown old, and the timeline.
//
// Invariants. No request changes anything: there is GET and HEAD, and the reader lists.
// Nothing of the cluster is said to whom Allow does not let in, or who comes under a
// host name that is not ours. The page loads nothing from elsewhere, and shows what the
// cluster says as text, never as markup. Nothing is read while nobody asks.
//
// Callers: the command "ovnkube egress serve", and app for the master.
package page
