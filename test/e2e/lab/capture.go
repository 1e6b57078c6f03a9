package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/kin"
)

// Capture writes the packets on an interface of a machine to a file on that machine.
type Capture struct {
	Machine string

	lab      *Lab
	device   string
	file     string
	attached *kin.Attached
}

// Capture starts a capture and returns once it sees packets. It ends with Close, or when the
// machine stops.
func (l *Lab) Capture(ctx context.Context, machine, device, filter string) (*Capture, error) {
	l.captures++
	c := &Capture{Machine: machine, lab: l, device: device, file: fmt.Sprintf("/run/capture-%d", l.captures)}
	var err error
	c.attached, err = l.Kin.ExecAttached(machine, "sh", "-c",
		`tcpdump --immediate-mode -ttnnel -i "$0" "$1" >"$2" 2>"$2.err" & cat >/dev/null; kill $!`, device, filter, c.file)
	if err != nil {
		return nil, err
	}
	err = Until(ctx, 20*time.Second, "the capture on "+machine, func(ctx context.Context) error {
		_, err := l.Kin.Exec(ctx, machine, "grep", "-q", "listening on", c.file+".err")
		return err
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the capture. The machine may already be down.
func (c *Capture) Close() { _ = c.attached.Close() }

// Packets returns all packets captured so far.
func (c *Capture) Packets(ctx context.Context) ([]Packet, error) {
	packets, err := c.packets(ctx, "cat", c.file)
	return withoutForged(packets), err
}

// Recent returns the last few thousand of them.
func (c *Capture) Recent(ctx context.Context) ([]Packet, error) {
	packets, err := c.packets(ctx, "tail", "-n", "4000", c.file)
	return withoutForged(packets), err
}

// Proven is Packets once the capture has shown that it sees, now, what has a wrong source: a packet
// forged on its interface to each of the destinations, which must match its filter. A capture that
// has ended, or whose filter excludes too much, would not show any wrong packet.
func (c *Capture) Proven(ctx context.Context, protocol string, to ...netip.AddrPort) ([]Packet, error) {
	forge := []string{"forge", "-dev", c.device, "-from4", strangers[0].String(), "-from6", strangers[1].String(), "-tcp=" + strconv.FormatBool(protocol == "tcp")}
	for _, a := range to {
		forge = append(forge, a.String())
	}
	began := time.Now()
	var all []Packet
	err := Until(ctx, 20*time.Second, "the capture on "+c.Machine+" to show forged packets", func(ctx context.Context) (err error) {
		// They are sent at every attempt, since a busy machine may lose some.
		if _, err := c.lab.Call(ctx, c.Machine, false, forge...); err != nil {
			return fmt.Errorf("forge packets on %s: %w", c.Machine, err)
		}
		if all, err = c.packets(ctx, "cat", c.file); err != nil {
			return err
		}
		return unseen(all, began, to)
	})
	return withoutForged(all), err
}

// strangers are the source addresses of forged packets, one of each family: nobody has them.
var strangers = []netip.Addr{netip.MustParseAddr("192.0.2.99"), netip.MustParseAddr("2001:db8::99")}

func isForged(p Packet) bool { return slices.Contains(strangers, p.Source.Addr()) }

func withoutForged(packets []Packet) []Packet { return slices.DeleteFunc(packets, isForged) }

// unseen returns an error unless a packet forged after the given time is among the packets for each of
// the destinations.
func unseen(packets []Packet, after time.Time, to []netip.AddrPort) error {
	for _, a := range to {
		if !slices.ContainsFunc(packets, func(p Packet) bool { return isForged(p) && p.Destination == a && p.At.After(after) }) {
			return fmt.Errorf("none to %s since %s", a, after.Format(time.StampMicro))
		}
	}
	return nil
}

func (c *Capture) packets(ctx context.Context, command ...string) ([]Packet, error) {
	out, err := c.lab.Kin.Exec(ctx, c.Machine, command...)
	if err != nil {
		return nil, err
	}
	var packets []Packet
	for line := range strings.Lines(out) {
		if p, ok := parsePacket(line); ok {
			packets = append(packets, p)
		}
	}
	return packets, nil
}

// Packet is a captured packet.
type Packet struct {
	At time.Time
	// MAC is the sender's MAC address on this wire.
	MAC string
	// Source and Destination are from the IP header; not set for ARP.
	Source, Destination netip.AddrPort
	// Claims is the address that the sender claims to have, by ARP or in a neighbor advertisement.
	Claims netip.Addr
	Text   string
}

// parsePacket parses a line of tcpdump output. The last line of a file may be incomplete.
func parsePacket(line string) (Packet, bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || !strings.HasSuffix(line, "\n") {
		return Packet{}, false
	}
	seconds, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return Packet{}, false
	}
	p := Packet{At: time.UnixMicro(int64(seconds * 1e6)), MAC: fields[1], Text: strings.TrimSpace(line)}
	_, message, _ := strings.Cut(line, ": ")
	words := strings.FieldsFunc(message, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' })
	word := func(i int) string {
		if i < 0 || i >= len(words) {
			return ""
		}
		return words[i]
	}
	claim := ""
	switch {
	case strings.Contains(line, "ethertype ARP"):
		claim = word(1) // of a reply or an announcement
		if i := slices.Index(words, "tell"); i >= 0 {
			claim = word(i + 1)
		}
	case strings.Contains(line, "neighbor advertisement"):
		claim = word(slices.Index(words, "is") + 1)
	}
	p.Claims, _ = netip.ParseAddr(claim)
	if word(1) == ">" {
		p.Source, p.Destination = endpoint(word(0)), endpoint(strings.TrimSuffix(word(2), ":"))
	}
	return p, true
}

// endpoint parses ADDRESS or ADDRESS.PORT.
func endpoint(text string) netip.AddrPort {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, 0)
	}
	dot := strings.LastIndexByte(text, '.')
	if dot < 0 {
		return netip.AddrPort{}
	}
	address, err := netip.ParseAddr(text[:dot])
	if err != nil {
		return netip.AddrPort{}
	}
	port, err := strconv.ParseUint(text[dot+1:], 10, 16)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address, uint16(port))
}
