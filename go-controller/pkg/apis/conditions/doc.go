// Package conditions defines the conditions in the statuses of all our kinds: their types, and for each kind the
// possible reasons, what they mean and what to do about them. docs/conditions.md is generated from the table; the
// planners' tests check that no other conditions are used.
//
// A condition type means the same for every kind. When one is renamed, the former name is served next to it, with
// the same content, for one version.
package conditions
