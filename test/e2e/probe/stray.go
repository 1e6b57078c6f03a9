package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// stray sends packets that belong to no connection to each destination, as a host does whose
// connections the nodes have forgotten: connection tracking considers most of them invalid. The last one
// is an ordinary datagram.
func stray(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("stray", flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("stray needs an ADDRESS:PORT to send to")
	}
	for _, text := range flags.Args() {
		to, err := netip.ParseAddrPort(text)
		if err != nil {
			return err
		}
		conn, err := net.Dial("udp", text)
		if err != nil {
			return err
		}
		defer conn.Close()
		own := conn.LocalAddr().(*net.UDPAddr).AddrPort()
		for _, p := range strays(own, to) {
			if err := sendRaw(own.Addr(), to.Addr(), p); err != nil {
				return fmt.Errorf("send protocol %d to %s: %w", p.protocol, to, err)
			}
		}
		if _, err := conn.Write([]byte("ordinary")); err != nil {
			return err
		}
	}
	return nil
}

// rawPacket is a packet without its IP header.
type rawPacket struct {
	protocol byte
	payload  []byte
}

// sendRaw sends a packet below a header of the kernel's.
func sendRaw(from, to netip.Addr, p rawPacket) error {
	network := map[bool]string{true: "ip4:", false: "ip6:"}[from.Is4()] + strconv.Itoa(int(p.protocol))
	conn, err := net.DialIP(network, &net.IPAddr{IP: from.AsSlice()}, &net.IPAddr{IP: to.AsSlice()})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write(p.payload)
	return err
}

// strays returns packets that belong to no connection.
func strays(from, to netip.AddrPort) []rawPacket {
	const (
		fin, syn, rst, push, ack = 1, 2, 4, 8, 16
		experimental             = 253
	)
	var all []rawPacket
	for _, set := range []byte{fin, fin | ack, fin | push | ack, rst, rst | ack, syn | ack, syn | fin, 0, ack} {
		all = append(all, rawPacket{unix.IPPROTO_TCP, segment(from, to, set)})
	}
	damaged := segment(from, to, ack)
	damaged[16] ^= 0xff // the checksum
	datagram := binary.BigEndian.AppendUint16(nil, from.Port())
	datagram = binary.BigEndian.AppendUint16(datagram, to.Port())
	datagram = append(datagram, 0, 8, 0xba, 0xd0) // the length, and a wrong checksum
	all = append(all, rawPacket{unix.IPPROTO_TCP, damaged}, rawPacket{unix.IPPROTO_UDP, datagram},
		rawPacket{unix.IPPROTO_GRE, []byte{0, 0, 0x08, 0}},
		rawPacket{unix.IPPROTO_ESP, make([]byte, 16)},
		rawPacket{unix.IPPROTO_SCTP, abort(from, to)},
		rawPacket{experimental, make([]byte, 8)})
	// An error about a packet that never came, and an answer without a question.
	quoted := slices.Concat([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, to.Addr().AsSlice(), from.Addr().AsSlice())
	protocol, unreachable, reply := byte(unix.IPPROTO_ICMP), []byte{3, 3}, []byte{0, 0}
	if from.Addr().Is6() {
		quoted = slices.Concat([]byte{0x60, 0, 0, 0, 0, 8, unix.IPPROTO_UDP, 64}, to.Addr().AsSlice(), from.Addr().AsSlice())
		protocol, unreachable, reply = unix.IPPROTO_ICMPV6, []byte{1, 4}, []byte{129, 0}
	}
	quoted = slices.Concat(quoted, []byte{0, 53, 0xc0, 0, 0, 8, 0, 0})
	for _, message := range [][]byte{slices.Concat(unreachable, make([]byte, 6), quoted), slices.Concat(reply, []byte{0, 0, 0x12, 0x34, 0, 1})} {
		if from.Addr().Is4() { // for IPv6 the kernel does
			binary.BigEndian.PutUint16(message[2:], checksum(message))
		}
		all = append(all, rawPacket{protocol, message})
	}
	return all
}

// segment returns a TCP segment without data and with the given flags.
func segment(from, to netip.AddrPort, flags byte) []byte {
	s := binary.BigEndian.AppendUint16(nil, from.Port())
	s = binary.BigEndian.AppendUint16(s, to.Port())
	s = append(s, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	if flags&16 != 0 {
		s[11] = 1 // what is acknowledged
	}
	pseudo := slices.Concat(from.Addr().AsSlice(), to.Addr().AsSlice(), []byte{0, unix.IPPROTO_TCP, 0, byte(len(s))}, s)
	binary.BigEndian.PutUint16(s[16:], checksum(pseudo))
	return s
}

// abort returns an SCTP packet that aborts an association.
func abort(from, to netip.AddrPort) []byte {
	p := binary.BigEndian.AppendUint16(nil, from.Port())
	p = binary.BigEndian.AppendUint16(p, to.Port())
	p = append(p, 0, 0, 0, 1, 0, 0, 0, 0, 6, 0, 0, 4) // tag, checksum, and the chunk
	// SCTP stores its checksum, CRC-32C, in little-endian order.
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return p
}
