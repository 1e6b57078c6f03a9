// Package nb defines the types for OVN northbound rows: the row that a planner wants (Row),
// the object that it belongs to (Owner), and the interface that writes it (Writer).
//
// Every row has exactly one owner, and exactly one work queue key writes the rows of an
// owner. Applying an empty list deletes the owner's rows, so creation, change, deletion and
// restart take the same path. Package nb/ovsdb holds the real writer and nb/nbfake an
// in-memory one for controller tests.
package nb
