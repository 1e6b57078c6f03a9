package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// solicit continuously asks the wire who has certain addresses, by ARP and neighbor solicitation,
// with a broadcast or multicast each time: a kernel would ask only when it does not know. A capture
// shows who answers.
func solicit(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("solicit", flag.ContinueOnError)
	device := flags.String("dev", "eth0", "interface to ask on")
	every := flags.Duration("every", 10*time.Millisecond, "time between two rounds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	link, err := net.InterfaceByName(*device)
	if err != nil {
		return err
	}
	var frames [][]byte
	for _, text := range flags.Args() {
		target, err := netip.ParseAddr(text)
		if err != nil {
			return err
		}
		from, err := sourceFor(link, target)
		if err != nil {
			return err
		}
		if target.Is4() {
			frames = append(frames, arpRequest(link.HardwareAddr, from, target))
		} else {
			frames = append(frames, neighborSolicitation(link.HardwareAddr, from, target))
		}
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer unix.Close(fd)
	ctx = untilStdinCloses(ctx)
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for {
		for _, f := range frames {
			if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// untilStdinCloses returns a context that also ends when standard input is closed: whoever runs a
// program on a machine from outside holds the other end.
func untilStdinCloses(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// sourceFor returns the interface's address in the network of target.
func sourceFor(link *net.Interface, target netip.Addr) (netip.Addr, error) {
	addresses, err := link.Addrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Contains(target) {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no address in the network of %s", link.Name, target)
}

func arpRequest(mac net.HardwareAddr, from, target netip.Addr) []byte {
	broadcast := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	return slices.Concat(broadcast, mac, []byte{0x08, 0x06}, // Ethernet, ARP
		[]byte{0, 1, 8, 0, 6, 4, 0, 1}, // Ethernet, IPv4, their lengths, request
		mac, from.AsSlice(), make([]byte, 6), target.AsSlice())
}

func neighborSolicitation(mac net.HardwareAddr, from, target netip.Addr) []byte {
	t := target.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], t[13:])
	message := slices.Concat([]byte{135, 0, 0, 0, 0, 0, 0, 0}, t[:], []byte{1, 1}, mac) // with our link-layer address
	length := len(message)
	pseudo := slices.Concat(from.AsSlice(), group[:], []byte{0, 0, 0, byte(length), 0, 0, 0, unix.IPPROTO_ICMPV6}, message)
	binary.BigEndian.PutUint16(message[2:], checksum(pseudo))
	return slices.Concat([]byte{0x33, 0x33}, group[12:], mac, []byte{0x86, 0xdd}, // Ethernet, IPv6
		[]byte{0x60, 0, 0, 0, 0, byte(length), unix.IPPROTO_ICMPV6, 255}, from.AsSlice(), group[:], message)
}

// checksum is the Internet checksum of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// targets parses a comma-separated list of addresses and ports.
func targets(list string) ([]string, error) {
	var all []string
	for t := range strings.SplitSeq(list, ",") {
		if _, err := netip.ParseAddrPort(t); err != nil {
			return nil, fmt.Errorf("-to: %w", err)
		}
		all = append(all, t)
	}
	return all, nil
}
