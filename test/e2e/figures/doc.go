// Package figures keeps what tests measure: how long a failover, a move or a gap
// was, and how long it may be. A test records a figure once; that it is within its
// bound is asserted at the same time. The figures of one run are one file, $E2E_FIGURES,
// with a JSON object on each line, to which all test packages append.
//
// Callers: the end-to-end tests; the program show prints such a file as a table and
// compares two.
package figures
