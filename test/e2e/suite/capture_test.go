package suite

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/kin"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// capture captures packets that leave the nodes and arrive outside, and knows their correct source
// addresses.
type capture struct {
	*suite
	filter string       // for tcpdump
	right  []netip.Addr // correct source addresses
	taps   map[string]*kin.Attached
	file   string // on each machine, for captured packets; tcpdump's messages are in FILE.err
}

// captures counts the captures, so that each writes its own files.
var captures atomic.Int32

// newCapture captures UDP to a range of ports, on all machines.
func newCapture(t *testing.T, s *suite, ports string, right []netip.Addr) *capture {
	t.Helper()
	return newFilteredCapture(t, s, "udp dst portrange "+ports, right)
}

// newFilteredCapture captures what matches a tcpdump filter and was not sent by the outside host: a
// pod's port may have been translated to the one that the filter names, and then replies match it.
func newFilteredCapture(t *testing.T, s *suite, filter string, right []netip.Addr) *capture {
	t.Helper()
	filter = "(" + filter + ")" + notFrom(lab.OutsideAddresses)
	c := &capture{suite: s, filter: filter, right: right, taps: map[string]*kin.Attached{},
		file: fmt.Sprintf("/run/captured-%d", captures.Add(1))}
	t.Cleanup(func() {
		for _, machine := range slices.Collect(maps.Keys(c.taps)) {
			c.release(machine)
		}
	})
	c.tap(t, lab.Outside)
	for _, node := range nodes {
		c.tap(t, node)
	}
	return c
}

// tap writes what a machine's uplink sends, or the outside host receives, to a file on the machine.
func (c *capture) tap(t *testing.T, machine string) {
	t.Helper()
	filter := c.filter
	if machine != lab.Outside { // a node forwards thousands of correct packets
		filter += notFrom(c.right)
	}
	a, err := c.Kin.ExecAttached(machine, "sh", "-c",
		`tcpdump --immediate-mode -ttnnl -i eth0 "$0" >"$1" 2>"$1.err" & cat >/dev/null; kill $!`, filter, c.file)
	if err != nil {
		t.Fatal(err)
	}
	c.taps[machine] = a
	err = lab.Until(t.Context(), 20*time.Second, "the capture on "+machine, func(ctx context.Context) error {
		_, err := c.Kin.Exec(ctx, machine, "grep", "-q", "listening on", c.file+".err")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// notFrom returns the part of a tcpdump filter that excludes source addresses.
func notFrom(sources []netip.Addr) (filter string) {
	for _, a := range sources {
		filter += " and not src host " + a.String()
	}
	return filter
}

// release ends the capture on a machine; it may have ended with the machine.
func (c *capture) release(machine string) {
	if a := c.taps[machine]; a != nil {
		_ = a.Close()
		delete(c.taps, machine)
	}
}

// seenPacket is a line of a capture.
type seenPacket struct {
	at   time.Time
	src  netip.Addr
	port uint16 // destination port
	line string
}

// packets parses the output of tcpdump -tt -nn.
func packets(out string) (all []seenPacket) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		i := slices.Index(fields, ">")
		if i < 1 || i+1 >= len(fields) {
			continue
		}
		_, port, _ := cutLast(strings.TrimSuffix(fields[i+1], ":"), ".")
		p := seenPacket{line: strings.TrimSpace(line)}
		var err error
		if p.src, err = netip.ParseAddr(fields[i-1]); err != nil { // not so of ICMP, which has no ports
			src, _, _ := cutLast(fields[i-1], ".")
			if p.src, err = netip.ParseAddr(src); err != nil {
				continue
			}
		}
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			p.port = uint16(n)
		}
		if seconds, micros, ok := strings.Cut(fields[0], "."); ok {
			s, _ := strconv.ParseInt(seconds, 10, 64)
			us, _ := strconv.ParseInt(micros, 10, 64)
			p.at = time.Unix(s, us*1000)
		}
		all = append(all, p)
	}
	return all
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// sort splits packets into those with a correct source and the others.
func (c *capture) sort(all []seenPacket) (right, wrong []seenPacket) {
	for _, p := range all {
		if slices.Contains(c.right, p.src) {
			right = append(right, p)
		} else {
			wrong = append(wrong, p)
		}
	}
	return right, wrong
}

// read returns what a machine has captured so far.
func (c *capture) read(ctx context.Context, machine string) (right, wrong []seenPacket, err error) {
	out, err := c.Kin.Exec(ctx, machine, "cat", c.file)
	if err != nil {
		return nil, nil, err
	}
	right, wrong = c.sort(packets(out))
	return right, wrong, nil
}

// inspect fails the test for packets with a wrong source, anywhere, and returns how many correct
// ones arrived outside.
func (c *capture) inspect(t *testing.T) (right int) {
	t.Helper()
	const most = 20 // lines of a failure message
	for _, machine := range slices.Sorted(maps.Keys(c.taps)) {
		good, wrong, err := c.read(t.Context(), machine)
		if err != nil {
			t.Fatal(err)
		}
		if machine == lab.Outside {
			right = len(good)
		}
		if len(wrong) == 0 {
			continue
		}
		t.Errorf("%d packets seen at %s have a wrong source", len(wrong), machine)
		for _, p := range wrong[:min(most, len(wrong))] {
			t.Logf("%s: %s", machine, p.line)
		}
	}
	return right
}

// arrives waits for a correct packet to a port, any if 0, after the given time and returns when it
// arrived.
func (c *capture) arrives(t *testing.T, port uint16, after time.Time) (at time.Time) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "right packets to arrive", func(ctx context.Context) error {
		out, err := c.Kin.Exec(ctx, lab.Outside, "tail", "-n", "4000", c.file)
		if err != nil {
			return err
		}
		right, _ := c.sort(packets(out))
		i := slices.IndexFunc(right, func(p seenPacket) bool { return (port == 0 || p.port == port) && p.at.After(after) })
		if i < 0 {
			return fmt.Errorf("none to port %d since %s", port, after)
		}
		at = right[i].at
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}
