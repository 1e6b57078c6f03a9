// Package announce tells a network that an address has moved to this host, so
// that neighbours do not go on sending to where it was: gratuitous ARP for IPv4,
// unsolicited neighbour advertisements for IPv6.
//
// Frames are made here and sent through AF_PACKET. The libraries there are for
// ARP and for neighbour discovery speak as an interface that has the address; on
// the external bridge the host does not have it, and its gateway router, which
// does, is silent until the node holds the address. Two fixed frames of one place
// are less than two libraries.
//
// The address is announced at once and then a few times more, since a frame may
// get lost and some neighbours believe nothing twice in a second. Stop ends that,
// and when it has returned nothing is sent any more: a host that lets an address
// go must not claim it afterwards.
//
// Ask is the other direction: it makes a neighbour say where it is, to the host and to
// the gateway router, which has the same MAC address and hears the answer.
//
// Callers: the node side of EgressIP.
package announce
