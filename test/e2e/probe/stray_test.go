package main

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestSegment(t *testing.T) {
	for _, c := range []struct {
		from, to string
		flags    byte
		want     string
	}{
		{"10.244.1.5:40000", "172.18.0.100:9", 4, "9c40 0009 12345678 00000000 5004 ffff"},
		{"10.244.1.5:40000", "172.18.0.100:9", 17, "9c40 0009 12345678 00000001 5011 ffff"},
		{"[fd00:10:244:1::5]:40000", "[fc00::100]:9", 0, "9c40 0009 12345678 00000000 5000 ffff"},
	} {
		from, to := netip.MustParseAddrPort(c.from), netip.MustParseAddrPort(c.to)
		s := segment(from, to, c.flags)
		if got := fmt.Sprintf("%x %x %x %x %x %x", s[:2], s[2:4], s[4:8], s[8:12], s[12:14], s[14:16]); got != c.want || len(s) != 20 {
			t.Errorf("%d from %s to %s: have %s, want %s", c.flags, from, to, got, c.want)
		}
		// A packet with its checksum adds up to nothing.
		sum := append(append(from.Addr().AsSlice(), to.Addr().AsSlice()...), 0, 6, 0, 20)
		if left := checksum(append(sum, s...)); left != 0 {
			t.Errorf("%d from %s to %s: the checksum is wrong by %x", c.flags, from, to, left)
		}
	}
}

func TestStrays(t *testing.T) {
	for _, addrs := range [][2]string{{"10.244.1.5:40000", "172.18.0.100:9"}, {"[fd00:10:244:1::5]:40000", "[fc00::100]:9"}} {
		protocols := map[byte]int{}
		for _, p := range strays(netip.MustParseAddrPort(addrs[0]), netip.MustParseAddrPort(addrs[1])) {
			protocols[p.protocol]++
			if p.protocol == 1 && checksum(p.payload) != 0 {
				t.Errorf("an ICMP message has a wrong checksum: %x", p.payload)
			}
		}
		if len(protocols) != 7 {
			t.Errorf("from %s: protocols %v", addrs[0], protocols)
		}
	}
}
