package lab

import (
	"fmt"
	"testing"
)

func TestParsePacket(t *testing.T) {
	for line, want := range map[string]string{
		"1795293277.501473 02:42:ac:12:00:64 > ff:ff:ff:ff:ff:ff, ethertype ARP (0x0806), length 42: Request who-has 172.18.0.3 tell 172.18.0.100, length 28\n":                                                                  "501473 02:42:ac:12:00:64 claims 172.18.0.100",
		"1795293277.501473 02:42:ac:12:00:64 > ff:ff:ff:ff:ff:ff, ethertype ARP (0x0806), length 42: Request who-has 172.18.0.3 (ff:ff:ff:ff:ff:ff) tell 172.18.0.100, length 28\n":                                              "501473 02:42:ac:12:00:64 claims 172.18.0.100",
		"1795293277.501942 02:42:ac:12:00:03 > 02:42:ac:12:00:64, ethertype ARP (0x0806), length 42: Reply 172.18.0.3 is-at 02:42:ac:12:00:03, length 28\n":                                                                      "501942 02:42:ac:12:00:03 claims 172.18.0.3",
		"1795293277.501942 02:42:ac:12:00:03 > ff:ff:ff:ff:ff:ff, ethertype ARP (0x0806), length 42: Announcement 172.18.0.3, length 28\n":                                                                                       "501942 02:42:ac:12:00:03 claims 172.18.0.3",
		"1795293277.452524 02:42:ac:12:00:03 > 02:42:ac:12:00:64, ethertype IPv6 (0x86dd), length 86: fc00:f853:ccd:e793::3 > fc00:f853:ccd:e793::100: ICMP6, neighbor advertisement, tgt is fc00:f853:ccd:e793::3, length 32\n": "452524 02:42:ac:12:00:03 fc00:f853:ccd:e793::3 0 claims fc00:f853:ccd:e793::3",
		"1795293277.502118 02:42:ac:12:00:64 > 33:33:ff:00:00:03, ethertype IPv6 (0x86dd), length 86: fc00:f853:ccd:e793::100 > ff02::1:ff00:3: ICMP6, neighbor solicitation, who has fc00:f853:ccd:e793::3, length 32\n":        "502118 02:42:ac:12:00:64 fc00:f853:ccd:e793::100 0",
		"1795293277.100000 02:42:ac:12:00:03 > 02:42:ac:12:00:64, ethertype IPv4 (0x0800), length 60: 172.18.0.201.41000 > 172.18.0.100.9998: UDP, length 5\n":                                                                   "100000 02:42:ac:12:00:03 172.18.0.201 41000",
		"1795293277.100000 02:42:ac:12:00:03 > 02:42:ac:12:00:64, ethertype IPv6 (0x86dd), length 80: fc00:f853:ccd:e793::201.41000 > fc00:f853:ccd:e793::100.9998: UDP, length 5\n":                                             "100000 02:42:ac:12:00:03 fc00:f853:ccd:e793::201 41000",
		"1795293277.100000 02:42:ac:12:00:03 > 02:42:ac:12:00:64, ethertype IPv6 (0x86dd), length 80: fc00:f853:ccd:e793::201.41000 > fc00:f853:c":                                                                               "-",
		"tcpdump: verbose output suppressed, use -v[v]... for full protocol decode\n":                                                                                                                                            "-",
	} {
		p, ok := parsePacket(line)
		have := "-"
		if ok {
			have = fmt.Sprintf("%d %s", p.At.UnixMicro()%1e6, p.MAC)
			if p.Source.IsValid() {
				have += fmt.Sprintf(" %s %d", p.Source.Addr(), p.Source.Port())
			}
			if p.Claims.IsValid() {
				have += fmt.Sprintf(" claims %s", p.Claims)
			}
		}
		if have != want {
			t.Errorf("%s: have %s, want %s", line, have, want)
		}
	}
}
