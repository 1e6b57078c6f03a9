package announce

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Protocol numbers from the RFCs.
const (
	arpRequest = 1
	arpReply   = 2

	protocolICMPv6  = 58
	hopLimit        = 255 // required by neighbor discovery
	solicitation    = 135
	advertisement   = 136
	override        = 0x20000000 // replaces the neighbour's existing entry
	optionSource    = 1
	optionLinkLayer = 2
)

var (
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	// allNodes is the destination of unsolicited advertisements, and allNodesMAC its Ethernet
	// address.
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
)

// frames returns the Ethernet frames that announce addr at mac.
func frames(mac net.HardwareAddr, addr netip.Addr) [][]byte {
	if addr.Is4() {
		// Some hosts only listen to requests, some only to replies.
		return [][]byte{arp(mac, addr, arpRequest), arp(mac, addr, arpReply)}
	}
	return [][]byte{advert(mac, addr)}
}

func ethernet(to, from net.HardwareAddr, protocol uint16) []byte {
	frame := append(append([]byte{}, to...), from...)
	return binary.BigEndian.AppendUint16(frame, protocol)
}

// question returns the frame with which from, at mac, asks for the MAC address of neighbour.
func question(mac net.HardwareAddr, from, neighbour netip.Addr) []byte {
	if from.Is4() {
		return arpOf(arpRequest, mac, from, make(net.HardwareAddr, 6), neighbour)
	}
	low := neighbour.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], low[13:])
	to := net.HardwareAddr{0x33, 0x33, 0xff, low[13], low[14], low[15]}
	message := []byte{solicitation, 0, 0, 0, 0, 0, 0, 0}
	message = append(message, neighbour.AsSlice()...)
	message = append(append(message, optionSource, 1), mac...)
	return discovery(mac, from, to, netip.AddrFrom16(group), message)
}

// arp returns a gratuitous ARP packet: sender and target are the same address.
func arp(mac net.HardwareAddr, addr netip.Addr, operation uint16) []byte {
	target := make(net.HardwareAddr, 6)
	if operation == arpReply {
		target = broadcast
	}
	return arpOf(operation, mac, addr, target, addr)
}

func arpOf(operation uint16, mac net.HardwareAddr, sender netip.Addr, targetMAC net.HardwareAddr, target netip.Addr) []byte {
	frame := ethernet(broadcast, mac, unix.ETH_P_ARP)
	frame = append(frame, 0, 1, 8, 0, 6, 4)
	frame = binary.BigEndian.AppendUint16(frame, operation)
	frame = append(append(frame, mac...), sender.AsSlice()...)
	return append(append(frame, targetMAC...), target.AsSlice()...)
}

// advert returns an unsolicited neighbor advertisement from the address itself.
func advert(mac net.HardwareAddr, addr netip.Addr) []byte {
	message := []byte{advertisement, 0, 0, 0}
	message = binary.BigEndian.AppendUint32(message, override)
	message = append(message, addr.AsSlice()...)
	message = append(append(message, optionLinkLayer, 1), mac...)
	return discovery(mac, addr, allNodesMAC, allNodes, message)
}

// discovery wraps a neighbor discovery message into a frame and fills in its checksum.
func discovery(mac net.HardwareAddr, from netip.Addr, toMAC net.HardwareAddr, to netip.Addr, message []byte) []byte {
	binary.BigEndian.PutUint16(message[2:], checksum(from, to, message))
	frame := ethernet(toMAC, mac, unix.ETH_P_IPV6)
	frame = append(frame, 0x60, 0, 0, 0)
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(message)))
	frame = append(frame, protocolICMPv6, hopLimit)
	frame = append(append(frame, from.AsSlice()...), to.AsSlice()...)
	return append(frame, message...)
}

// checksum returns the ICMPv6 checksum, over a pseudo header and the message, whose length is even.
func checksum(src, dst netip.Addr, message []byte) uint16 {
	pseudo := append(src.AsSlice(), dst.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(message)))
	pseudo = binary.BigEndian.AppendUint32(pseudo, protocolICMPv6)
	sum := uint32(0)
	for _, part := range [][]byte{pseudo, message} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
