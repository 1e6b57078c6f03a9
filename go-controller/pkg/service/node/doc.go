// Package node is a node's side of Services: the rules and routes by which its
// kernel takes traffic to them, the flows by which its external bridge hands traffic to the
// gateway router, the health ports, and an end for UDP connections that lead to
// endpoints which have gone.
//
// Two queues, one direction. Services has a key for each Service; it plans and
// remembers, without I/O. Writes has a key for each kind of thing written, which
// takes what is remembered of all Services: many changes are one write, and an
// endpoint change that alters no rule is none. Writing begins once all Services
// have been planned, so that a restart takes nothing away.
//
// Caller: pkg/app.
package node
