package host

import "net/netip"

// Steered is a connection whose replies OVN sends to the neighbour from which its first packet
// came, whatever the routes say.
type Steered struct {
	Zone     uint16
	Dst      netip.Addr // of the first packet: the host that replies
	Neighbor string     // MAC address, formatted as by net.HardwareAddr
	Tuple    string     // of the first packet, in the driver's notation
}
