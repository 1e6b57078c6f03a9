// Package nb is the vocabulary of OVN northbound rows: what a planner wants
// (Row), whose it is (Owner), and who writes it (Writer).
//
// Every row has exactly one owner, and exactly one work-queue key writes an
// owner. Applying an empty list deletes the owner's rows, so there is one path
// for creation, change, deletion and restart. Package nb/ovsdb holds the real
// writer and nb/nbfake an in-memory one for controller tests.
package nb
