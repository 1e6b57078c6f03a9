// Package announce tells a network that an address has moved to this host, so that neighbours do
// not keep sending to the old place: gratuitous ARP for IPv4, unsolicited neighbor advertisements
// for IPv6.
//
// Frames are built here and sent through AF_PACKET. The existing libraries for ARP and neighbor
// discovery act as an interface that has the address. On the external bridge the host does not have
// it, and the gateway router, which does, is silent until the node holds the address. Two fixed
// frames built in one place are less code than two libraries.
//
// The address is announced immediately and then a few more times, since a frame may get lost and
// some neighbours accept only one update per second. Stop ends that, and nothing is sent after it
// has returned: a host that has released an address must not claim it afterwards.
//
// Solicit is for the opposite direction: it makes a neighbour tell its MAC address to the host and to
// the gateway router, which has the same MAC address as the host and hears the answer.
//
// Callers: the node side of EgressIP.
package announce
