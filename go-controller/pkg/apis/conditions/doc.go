// Package conditions is the vocabulary of the conditions in the statuses of all
// our kinds: their types, and for each kind which reasons they have, what these
// mean and what to do about them. The table is docs/conditions.md, which is
// generated from it; the planners' tests check that they say nothing else.
//
// A condition type means the same in every kind. Where one is renamed, the former
// name is served beside it, with the same content, for one version.
package conditions
