// Package nbfake is an in-memory nb.Writer for controller tests. It has the semantics of
// nb/ovsdb at the level of package nb: it diffs, rejects rows whose parent is missing or
// whose name is taken, deletes children with their parent, counts what it writes, and
// renders its rows as stable text for golden files.
//
// Imported by tests only.
package nbfake
