package host

import "net/netip"

// Network is a link of the host that is up, with its addresses and the routes of
// the main table that go through it.
type Network struct {
	Link   string
	Index  int // of the interface
	Addrs  []netip.Prefix
	Routes []LinkRoute
}
