package topology

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestParsePodAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"0a:58:0a:f4:01:03 10.244.1.3":                  "0a:58:0a:f4:01:03 [10.244.1.3]",
		"0a:58:0a:f4:01:03 10.244.1.3 fd00:10:244:2::3": "0a:58:0a:f4:01:03 [10.244.1.3 fd00:10:244:2::3]",
		"":                                "-",
		"dynamic":                         "-",
		"unknown":                         "-",
		"router":                          "-",
		"0a:58:0a:f4:01:03":               "-",
		"0a:58:0a:f4:01:03 dynamic":       "-",
		"0a:58:0a:f4:01:03 10.244.1.3/24": "-",
		"0a:58:0a:f4:01:03 10.244.1.3 10.244.1.4":         "-",
		"0a:58:0a:f4:01:03 0.0.0.0":                       "-",
		"0a:58:0a:f4:01:03 ::ffff:10.244.1.3":             "-",
		"0a:58:0a:f4:01:03 fe80::1%eth0":                  "-",
		"0b:58:0a:f4:01:03 10.244.1.3":                    "-",
		"0a:58:0a:f4:01:03 10.244.1.3 fd00::3 10.244.1.4": "-",
	} {
		got := "-"
		if p, ok := ParsePodAddresses(text); ok {
			got = fmt.Sprint(p.MAC, " ", p.Addrs)
		}
		if got != want {
			t.Errorf("%q is read as %s, want %s", text, got, want)
		}
	}
}

func TestPodAddressesNetwork(t *testing.T) {
	subnets := []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:2::/64")}
	for text, want := range map[string]string{
		"0a:58:0a:f4:01:03 10.244.1.3":                  "[10.244.1.3/24] [10.244.1.1]",
		"0a:58:0a:f4:01:03 fd00:10:244:2::3 10.244.1.3": "[10.244.1.3/24 fd00:10:244:2::3/64] [10.244.1.1 fd00:10:244:2::1]",
		"0a:58:0a:f4:01:03 10.244.2.3":                  "-",
		"0a:58:0a:f4:01:03 10.244.1.3 fd00::3":          "-",
	} {
		p, ok := ParsePodAddresses(text)
		if !ok {
			t.Fatal(text)
		}
		got := "-"
		if n, ok := p.Network(subnets); ok {
			got = fmt.Sprint(n.Addrs, " ", n.Gateways)
		}
		if got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	if _, ok := (PodAddresses{}).Network(subnets); ok {
		t.Error("a pod without addresses has a network")
	}
}
