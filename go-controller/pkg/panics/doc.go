// Package panics confines a panic to the work that caused it. External input is decoded and planned in many
// goroutines; a bug there must fail one object, not the process and with it everything else that it serves.
//
// Catch turns a panic into an error of the call, logs it with its stack and counts it by the part of the program in
// which it happened. A function that may panic must release its locks with defer.
//
// Callers: package queue, for everything that is reconciled; the loops that do not run on a queue; app.
package panics
