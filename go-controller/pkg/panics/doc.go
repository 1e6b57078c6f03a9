// Package panics keeps a panic to the work that caused it. Input from outside is
// decoded and planned in many goroutines; a mistake there must fail one object, not
// the process and with it everything else that it serves.
//
// Catch turns a panic into an error of the call, logs it with its stack and counts
// it by the part of the program that it happened in. What was locked must be
// unlocked by defer in a function that may panic.
//
// Callers: package queue, for everything that is reconciled; the loops that do not
// run on a queue; app.
package panics
