// Package host defines what a node programs in its kernel and on its external bridge: iptables
// chains, ip rules, routes, addresses and OpenFlow flows, and the Set that writes the difference
// between desired and actual state.
//
// Every kind of kernel object has one driver (a sub-package) whose List returns only the objects
// that we own. Several contributors may want objects of one kind; the kernel gets the union.
// Nothing that an earlier run left is deleted before every contributor has applied once (Sweep), so
// that a restart interrupts nothing.
package host
