package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/kin"
)

// captureInterval is the interval at which a capture's file is read for what must soon be there.
const captureInterval = 20 * time.Millisecond

// Capture is the packets on an interface of a machine, which a program there writes to a file on this
// machine.
type Capture struct {
	Machine string

	lab      *Lab
	device   string
	attached *kin.Attached
	file     *os.File

	mu sync.Mutex
	// What has been read of the file: forged packets, the others, and the beginning of a line.
	forged, sent []Packet
	line         string
}

// Capture starts a capture and returns once it sees packets. It ends with Close, or when the
// machine stops.
func (l *Lab) Capture(ctx context.Context, machine, device, filter string) (*Capture, error) {
	out, err := os.CreateTemp(l.Dir, "capture-")
	if err != nil {
		return nil, fmt.Errorf("make a file for the capture on %s: %w", machine, err)
	}
	defer out.Close()
	said, err := os.Create(out.Name() + ".err")
	if err != nil {
		return nil, fmt.Errorf("make a file for the capture on %s: %w", machine, err)
	}
	defer said.Close()
	c := &Capture{Machine: machine, lab: l, device: device}
	defer os.Remove(said.Name())
	c.file, err = os.Open(out.Name())
	if err = errors.Join(err, os.Remove(out.Name())); err != nil { // the open files suffice
		return nil, fmt.Errorf("open the capture on %s: %w", machine, err)
	}
	c.attached, err = l.Kin.ExecAttachedTo(out, said, machine, "sh", "-c",
		`tcpdump --immediate-mode -ttnnel -i "$0" "$1" & cat >/dev/null; kill $!`, device, filter)
	if err != nil {
		return nil, errors.Join(err, c.file.Close())
	}
	err = untilEvery(ctx, captureInterval, 20*time.Second, "the capture on "+machine, func(context.Context) error {
		text, err := os.ReadFile(said.Name())
		if err == nil && !strings.Contains(string(text), "listening on") {
			err = fmt.Errorf("tcpdump says %q", text)
		}
		return err
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the capture. The machine may already be down.
func (c *Capture) Close() {
	_ = c.attached.Close()
	_ = c.file.Close()
}

// Packets returns all packets captured so far, which the caller must not change.
func (c *Capture) Packets() ([]Packet, error) {
	sent, _, err := c.read()
	return sent, err
}

// read returns the packets captured so far. It reads and parses only what is new in the file.
func (c *Capture) read() (sent, forged []Packet, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := io.ReadAll(c.file)
	if err != nil {
		return nil, nil, fmt.Errorf("read the capture on %s: %w", c.Machine, err)
	}
	c.add(string(text))
	return slices.Clip(c.sent), c.forged, nil
}

// add parses more of the file.
func (c *Capture) add(text string) {
	text = c.line + text
	end := strings.LastIndexByte(text, '\n') + 1
	c.line = text[end:]
	for line := range strings.Lines(text[:end]) {
		switch p, ok := parsePacket(line); {
		case !ok:
		case slices.Contains(strangers, p.Source.Addr()):
			c.forged = append(c.forged, p)
		default:
			c.sent = append(c.sent, p)
		}
	}
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
	var sent []Packet
	var last time.Time
	err := untilEvery(ctx, captureInterval, 20*time.Second, "the capture on "+c.Machine+" to show forged packets", func(ctx context.Context) (err error) {
		// They are sent again every second, since a busy machine may lose some.
		if time.Since(last) > time.Second {
			if _, err := c.lab.Call(ctx, c.Machine, false, forge...); err != nil {
				return fmt.Errorf("forge packets on %s: %w", c.Machine, err)
			}
			last = time.Now()
		}
		var forged []Packet
		if sent, forged, err = c.read(); err != nil {
			return err
		}
		return unseen(forged, began, to)
	})
	return sent, err
}

// strangers are the source addresses of forged packets, one of each family: nobody has them.
var strangers = []netip.Addr{netip.MustParseAddr("192.0.2.99"), netip.MustParseAddr("2001:db8::99")}

// unseen returns an error unless a packet after the given time is among the forged ones for each of the
// destinations.
func unseen(forged []Packet, after time.Time, to []netip.AddrPort) error {
	for _, a := range to {
		if !slices.ContainsFunc(forged, func(p Packet) bool { return p.Destination == a && p.At.After(after) }) {
			return fmt.Errorf("none to %s since %s", a, after.Format(time.StampMicro))
		}
	}
	return nil
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

// parsePacket parses a line of tcpdump output.
func parsePacket(line string) (Packet, bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 {
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
