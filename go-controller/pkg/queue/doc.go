// Package queue is the key-driven controller everything runs on: events become
// keys, keys are reconciled, a key that fails backs off and is tried again for
// ever. A feature whose writes are cheaper together takes the keys that are ready as
// one batch.
//
// At start-up every key that any seed names is reconciled once; objects that
// are gone but still own something in a target are seeds too, so there is no
// separate repair step.
//
// What fails stays alone. A panic is an error of the key that it happened in, or of
// the event. The start is over when every key was tried once (Attempted): nothing waits
// for a key to succeed but what would take its belongings for leftovers (Synced).
// Failures names what fails. Callers: the glue packages (master/, node/) of the
// features and pkg/app, which runs the controllers.
package queue
