package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// forge sends one packet with a foreign source address to each destination, to prove that a capture on the
// interface sees such packets. Frames are addressed to the interface itself, so nobody receives them.
func forge(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("forge", flag.ContinueOnError)
	device := flags.String("dev", "eth0", "interface to send on")
	source4 := flags.String("from4", "", "source address of packets to IPv4 addresses")
	source6 := flags.String("from6", "", "source address of packets to IPv6 addresses")
	tcp := flags.Bool("tcp", false, "send TCP instead of UDP")
	if err := flags.Parse(args); err != nil {
		return err
	}
	link, err := net.InterfaceByName(*device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer unix.Close(fd)
	for _, text := range flags.Args() {
		to, err := netip.ParseAddrPort(text)
		if err != nil {
			return err
		}
		source := *source6
		if to.Addr().Is4() {
			source = *source4
		}
		from, err := netip.ParseAddr(source)
		if err != nil {
			return err
		}
		frame := slices.Concat(link.HardwareAddr, link.HardwareAddr, forged(from, to, *tcp))
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// forged returns a packet with its EtherType. Its transport header has no checksum, since nobody
// receives it.
func forged(from netip.Addr, to netip.AddrPort, tcp bool) []byte {
	const discard = 9 // the source port
	protocol, transport := byte(unix.IPPROTO_UDP), make([]byte, 8)
	if tcp {
		protocol, transport = unix.IPPROTO_TCP, make([]byte, 20)
		transport[12], transport[13] = 5<<4, 2 // the length in words, SYN
	} else {
		binary.BigEndian.PutUint16(transport[4:], uint16(len(transport)))
	}
	binary.BigEndian.PutUint16(transport, discard)
	binary.BigEndian.PutUint16(transport[2:], to.Port())
	length := byte(len(transport))
	if to.Addr().Is4() {
		header := slices.Concat([]byte{0x45, 0, 0, 20 + length, 0, 0, 0, 0, 1, protocol, 0, 0}, from.AsSlice(), to.Addr().AsSlice())
		binary.BigEndian.PutUint16(header[10:], checksum(header))
		return slices.Concat([]byte{0x08, 0x00}, header, transport)
	}
	return slices.Concat([]byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, length, protocol, 1}, from.AsSlice(), to.Addr().AsSlice(), transport)
}
