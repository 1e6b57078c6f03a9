// Package figures records what tests measure, such as how long a failover, a move or a gap took,
// and how long it may take. Recording a figure also asserts that it is within its bound. The
// figures of a run are in one file, $E2E_FIGURES, with a JSON object per line, to which all test
// packages append.
//
// Callers: the end-to-end tests; the program show prints such a file as a table and compares two.
package figures
