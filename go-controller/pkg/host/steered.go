package host

import "net/netip"

// Steered is a connection whose replies OVN sends to the neighbour that its first
// packet came from, whatever the routes say.
type Steered struct {
	Zone     uint16
	Dst      netip.Addr // of the first packet: the one that replies
	Neighbor string     // MAC address, as net.HardwareAddr writes it
	Tuple    string     // of the first packet, as the driver takes it
}
