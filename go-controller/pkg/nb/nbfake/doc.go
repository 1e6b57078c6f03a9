// Package nbfake is an in-memory nb.Writer for controller tests. It follows the
// semantics of nb/ovsdb at the level of the vocabulary: it diffs, refuses rows
// without a parent and names that are taken, lets children die with their
// parent, counts what it writes, and shows its rows as stable text for goldens.
//
// Imported by tests only.
package nbfake
