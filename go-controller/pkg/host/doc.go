// Package host is the vocabulary of what a node programs in its kernel and its
// external bridge: iptables chains, ip rules, routes, addresses and OpenFlow
// flows, and the diffing Set that writes them.
//
// Every kernel object has one driver (a sub-package) whose List returns only
// what is ours. Several contributors may want parts of one kind of object; the
// union is what is there. Nothing is deleted before every contributor has
// spoken once (Sweep), so that a restart interrupts nothing.
package host
