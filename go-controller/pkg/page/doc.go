// Package page serves the egress map as a web page: nodes with their addresses, objects by state, the timeline of
// moves, and explanations.
//
// The page requests JSON in the schema of the verbs of "ovnkube egress". The answers come from package explain;
// this package adds HTTP, a snapshot that is refreshed when somebody asks and it is too old, and the timeline.
//
// Invariants. No request changes anything: only GET and HEAD are supported, and the reader only lists. Nothing
// about the cluster is told to anyone whom Allow does not admit, or who uses a host name that is not ours. The page
// loads nothing from elsewhere, and displays cluster data as text, never as markup. Nothing is read while nobody
// asks.
//
// Callers: the command "ovnkube egress serve", and app for the master.
package page
