package suite

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// pulseEvery is how often the pods of a takeover query: rarely, so that many of them are no load.
const pulseEvery = 50 * time.Millisecond

// takeover cuts the power of a node that has one EgressIP, and of one that has many: taking over
// their addresses must take hardly longer.
func (e *egressIPTest) takeover(t *testing.T, addresses int) {
	const dying = "ovn-worker"
	var one time.Duration
	for i, count := range []int{1, (addresses + 1) / 2} { // one address of each family
		t.Run(fmt.Sprintf("%d addresses", 2*count), func(t *testing.T) {
			gaps := e.takeOver(t, dying, "ovn-worker2", count)
			bound := figures.EgressIPFailover
			if i > 0 {
				bound = figures.Takeover(one)
			}
			one = slices.Max(gaps)
			figures.Record(t, fmt.Sprintf("EgressIP, new connections: power failure with %d addresses", 2*count), bound, gaps...)
		})
		if t.Failed() {
			return
		}
	}
}

// takeOver gives a node a number of EgressIPs, each with a pod elsewhere, cuts its power, and
// returns the longest time without an answer for each pod and family.
func (e *egressIPTest) takeOver(t *testing.T, from, to string, count int) (gaps []time.Duration) {
	var all []netip.Addr
	e.assignable(t, from)
	for i := range count {
		ips := []netip.Addr{netip.AddrFrom4([4]byte{172, 18, 2, byte(i + 1)}), netip.MustParseAddr(fmt.Sprintf("fc00:f853:ccd:e793::2:%x", i+1))}
		e.create(t, takeoverName(i), ips, held)
		all = append(all, ips...)
	}
	for i := range count {
		name := takeoverName(i)
		e.programmed(t, name)
		if _, err := e.RunPulseEvery(t.Context(), pulseEvery, name, lab.ControlPlane, chosen(name), lab.OutsideAddresses); err != nil {
			t.Fatal(err)
		}
		defer func() {
			// The test's own context may have ended.
			if err := e.DeletePod(context.WithoutCancel(t.Context()), name); err != nil {
				t.Error(err)
			}
		}()
	}
	c := newCapture(t, e.suite, lab.ServePort, lab.ServePort, all)
	e.pulsesGoOn(t, count)
	e.assignable(t, from, to)
	for i := range count {
		if _, err := e.Pulses(t.Context(), takeoverName(i), true); err != nil {
			t.Fatal(err)
		}
	}
	c.release(t, from)
	if err := e.Kin.Node(t.Context(), "kill", from); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range count {
		e.movedFrom(t, takeoverName(i), all[2*i], from)
	}
	t.Logf("all conditions were true again %s after the loss of power", time.Since(began).Round(time.Millisecond))
	e.pulsesGoOn(t, count)
	for i := range count {
		reports, err := e.Pulses(t.Context(), takeoverName(i), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range lab.OutsideAddresses {
			gaps = append(gaps, reports[to].MaxGap())
		}
	}
	c.inspect(t)
	e.rejoin(t, from)
	return gaps
}

func takeoverName(i int) string { return fmt.Sprintf("takeover-%d", i) }

// pulsesGoOn waits until every pod of a takeover currently gets answers in both families.
func (e *egressIPTest) pulsesGoOn(t *testing.T, count int) {
	t.Helper()
	for i := range count {
		name := takeoverName(i)
		first, err := e.Pulses(t.Context(), name, false)
		if err != nil {
			t.Fatal(err)
		}
		err = lab.Until(t.Context(), leakPatience, name+" to get answers", func(ctx context.Context) error {
			now, err := e.Pulses(ctx, name, false)
			for _, to := range lab.OutsideAddresses {
				if now[to].Echoed < first[to].Echoed+5 {
					return fmt.Errorf("answers from %s: %+v", to, now[to])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
