package suite

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// capture captures packets that leave the nodes and arrive outside, and knows their correct source
// addresses.
type capture struct {
	*suite
	filter string       // for tcpdump
	right  []netip.Addr // correct source addresses
	// forged are the destinations of packets with a wrong source that each tap must see: see
	// lab.Capture.Proven.
	forged []netip.AddrPort
	taps   map[string]*lab.Capture
}

// newCapture captures UDP to a range of ports, on all machines.
func newCapture(t *testing.T, s *suite, first, last uint16, right []netip.Addr) *capture {
	t.Helper()
	return newFilteredCapture(t, s, fmt.Sprintf("udp dst portrange %d-%d", first, last), first, right)
}

// newFilteredCapture captures what matches a tcpdump filter and was not sent by the outside host: a
// pod's port may have been translated to the one that the filter names, and then replies match it. The
// filter must match UDP to the given port.
func newFilteredCapture(t *testing.T, s *suite, filter string, port uint16, right []netip.Addr) *capture {
	t.Helper()
	filter = "(" + filter + ")" + notFrom(lab.OutsideAddresses)
	c := &capture{suite: s, filter: filter, right: right, taps: map[string]*lab.Capture{}}
	for _, a := range lab.OutsideAddresses {
		c.forged = append(c.forged, netip.AddrPortFrom(a, port))
	}
	t.Cleanup(func() {
		for _, tap := range c.taps {
			tap.Close()
		}
	})
	c.tap(t, append([]string{lab.Outside}, nodes...)...)
	return c
}

// tap captures what machines' uplinks send, or the outside host receives. A machine that lost power
// needs it again.
func (c *capture) tap(t *testing.T, machines ...string) {
	t.Helper()
	taps := make([]*lab.Capture, len(machines))
	err := atOnce(len(machines), func(i int) (err error) {
		filter := c.filter
		if machines[i] != lab.Outside { // a node forwards thousands of correct packets
			filter += notFrom(c.right)
		}
		taps[i], err = c.Capture(t.Context(), machines[i], "eth0", filter)
		return err
	})
	for i, machine := range machines {
		if taps[i] != nil {
			c.taps[machine] = taps[i]
		}
	}
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

// release inspects and ends the capture on a machine that is about to lose power, and what it has
// captured with it.
func (c *capture) release(t *testing.T, machine string) {
	t.Helper()
	c.inspectAt(t, machine)
	c.taps[machine].Close()
	delete(c.taps, machine)
}

// sort splits packets into those with a correct source and the others.
func (c *capture) sort(all []lab.Packet) (right, wrong []lab.Packet) {
	for _, p := range all {
		if slices.Contains(c.right, p.Source.Addr()) {
			right = append(right, p)
		} else {
			wrong = append(wrong, p)
		}
	}
	return right, wrong
}

// inspect fails the test for packets with a wrong source, anywhere, and for a capture that does not
// see any, and returns how many correct ones arrived outside.
func (c *capture) inspect(t *testing.T) (right int) {
	t.Helper()
	return c.inspectAt(t, slices.Sorted(maps.Keys(c.taps))...)[lab.Outside]
}

// inspectAt is inspect for some machines; it returns the number of correct packets at each.
func (c *capture) inspectAt(t *testing.T, machines ...string) map[string]int {
	t.Helper()
	const most = 20 // lines of a failure message
	packets := make([][]lab.Packet, len(machines))
	err := atOnce(len(machines), func(i int) (err error) {
		packets[i], err = c.taps[machines[i]].Proven(t.Context(), "udp", c.forged...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for i, machine := range machines {
		right, wrong := c.sort(packets[i])
		if len(wrong) > 0 {
			t.Errorf("%d packets seen at %s have a wrong source", len(wrong), machine)
		}
		for _, p := range wrong[:min(most, len(wrong))] {
			t.Logf("%s: %s", machine, p.Text)
		}
		counts[machine] = len(right)
	}
	return counts
}

// arrives waits for a correct packet to a port, any if 0, after the given time and returns when it
// arrived.
func (c *capture) arrives(t *testing.T, port uint16, after time.Time) (at time.Time) {
	t.Helper()
	err := lab.Until(t.Context(), leakPatience, "right packets to arrive", func(ctx context.Context) error {
		recent, err := c.taps[lab.Outside].Packets()
		if err != nil {
			return err
		}
		right, _ := c.sort(recent)
		i := slices.IndexFunc(right, func(p lab.Packet) bool {
			return (port == 0 || p.Destination.Port() == port) && p.At.After(after)
		})
		if i < 0 {
			return fmt.Errorf("none to port %d since %s", port, after)
		}
		at = right[i].At
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}
