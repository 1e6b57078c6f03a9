package lab

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
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

// A capture is proven only by packets forged to each destination, and since the proof began.
func TestForgedPackets(t *testing.T) {
	line := func(seconds int, source, destination string) string {
		return fmt.Sprintf("%d.5 02:42:ac:12:00:03 > 02:42:ac:12:00:03, ethertype IPv4 (0x0800), length 42: %s.9 > %s: UDP, length 0\n", seconds, source, destination)
	}
	sent, forged4, forged6 := line(101, "172.18.0.5", "172.18.0.100.9999"), line(101, "192.0.2.99", "172.18.0.100.9999"), line(101, "2001:db8::99", "fc00::100.9999")
	to := []netip.AddrPort{netip.MustParseAddrPort("172.18.0.100:9999"), netip.MustParseAddrPort("[fc00::100]:9999")}
	for name, c := range map[string]struct {
		lines  []string
		proven bool
		left   int
	}{
		"both":             {[]string{sent, forged4, forged6}, true, 1},
		"of one family":    {[]string{sent, forged4}, false, 1},
		"an earlier one":   {[]string{line(99, "192.0.2.99", "172.18.0.100.9999"), forged6}, false, 0},
		"to another port":  {[]string{line(101, "192.0.2.99", "172.18.0.100.9998"), forged6}, false, 0},
		"no forged packet": {[]string{sent, line(101, "172.18.0.5", "fc00::100.9999")}, false, 2},
	} {
		var capture Capture
		for _, l := range c.lines {
			capture.add(l[:40]) // a line may be read in parts
			capture.add(l[40:])
		}
		if n := len(capture.sent) + len(capture.forged); n != len(c.lines) {
			t.Errorf("%s: parsed %d of %d", name, n, len(c.lines))
		}
		if err := unseen(capture.forged, time.Unix(100, 0), to); (err == nil) != c.proven {
			t.Errorf("%s: %v", name, err)
		}
		if len(capture.sent) != c.left {
			t.Errorf("%s: left are %v", name, capture.sent)
		}
	}
}
