// Package node is the node part of Services: the kernel's rules and routes for traffic to
// them, the flows of the external bridge that send traffic to the gateway router, the
// health ports, and the deletion of stale UDP conntrack entries.
//
// There are two queues, and only the first enqueues keys in the second. The queue of
// Services has a key for each Service; it plans and stores the result, without I/O. The
// queue of writes has a key for each kind of configuration, which writes the stored results
// of all Services: many changes are one write, and an endpoint change that changes no rule
// is none. Writing starts once all Services have been planned, so that a restart removes
// nothing.
//
// Caller: pkg/app.
package node
