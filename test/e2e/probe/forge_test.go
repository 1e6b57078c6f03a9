package main

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestForged(t *testing.T) {
	for _, c := range []struct {
		from, to string
		tcp      bool
		want     string
	}{
		{"192.0.2.99", "172.18.0.100:9999", false, "0800 4500001c0000000001114af8c0000263ac120064 0009270f00080000"},
		{"192.0.2.99", "172.18.0.100:8080", true, "0800 450000280000000001064af7c0000263ac120064 00091f9000000000000000005002000000000000"},
		{"2001:db8::99", "[fc00::100]:9999", false,
			"86dd 6000000000081101" + "20010db8000000000000000000000099" + "fc000000000000000000000000000100 0009270f00080000"},
	} {
		packet := forged(netip.MustParseAddr(c.from), netip.MustParseAddrPort(c.to), c.tcp)
		header := 2 + 20
		if netip.MustParseAddr(c.from).Is6() {
			header = 2 + 40
		}
		if got := fmt.Sprintf("%x %x %x", packet[:2], packet[2:header], packet[header:]); got != c.want {
			t.Errorf("from %s to %s: have %s, want %s", c.from, c.to, got, c.want)
		}
	}
}
