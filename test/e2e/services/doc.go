// Package services tests Kubernetes Services end to end: which endpoint answers, and which client
// address it sees, on every path, in both gateway modes.
//
// Callers: package suite, whose clusters it uses.
package services
