// Package queue is the key-driven controller that everything runs on: events become
// keys, keys are reconciled, and a failing key backs off and is retried
// forever. A feature whose writes are cheaper together takes the ready keys as
// one batch.
//
// At start-up every seeded key is reconciled once; deleted objects
// that still own something in a target are seeded too, so there is no
// separate repair step.
//
// Failures are isolated. A panic counts as an error of its key, or of
// its event. The start is over when every key has been attempted once (Attempted). Only code
// that would treat a key's state as leftovers must wait for the key to succeed (Synced).
// Failures returns the failing keys. Callers: the controllers (master/, node/) of the
// features and pkg/app, which runs them.
package queue
