package suite

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

var tcpIngress = []netip.Addr{netip.MustParseAddr("5.5.5.8"), netip.MustParseAddr("5555::8")}

// settledTCP is how long it may take until connections carry traffic again.
const settledTCP = 20 * time.Second

// connections keeps TCP connections to the outside busy while their host changes gracefully and
// while the EgressService is deleted: each must continue, or be reset at once and be reopened; none
// may hang. FailoverLatency tests the death of a host.
func (s *suite) connections(t *testing.T) {
	var e *served
	t.Cleanup(func() { e.rulesOutlived(t) }) // after the EgressService is deleted
	e = s.serve(t, "tcp", tcpIngress)
	e.announce(t)
	host := e.programmed(t, "")
	streams := e.openStreams(t)
	e.steered(t, len(streams))
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
		// same reports whether address and port of a connection stay the same, so that it
		// continues.
		same  bool
		bound figures.Bound
	}{
		{"planned move", func(t *testing.T) {
			s.cordon(t, host, true)
			next := e.programmed(t, host)
			s.cordon(t, host, false)
			host = next
		}, true, figures.OpenConnectionMove},
		{"planned move that the pods' node follows late", func(t *testing.T) {
			proceed := s.suspend(t, process{name: "ovn-controller", node: lab.ControlPlane, pattern: "^ovn-controller "})
			s.cordon(t, host, true)
			next := e.programmed(t, host)
			s.cordon(t, host, false)
			// What the pods send leaves from the former host, and replies reach the next one.
			e.routedTo(t, next)
			s.allFlow(t, streams)
			proceed()
			if _, err := s.Kin.Exec(t.Context(), lab.ControlPlane, "ovn-nbctl", "--timeout=20", "--wait=hv", "sync"); err != nil {
				t.Fatal(err)
			}
			host = next
		}, true, figures.OpenConnectionMove},
		{"EgressService deleted", func(t *testing.T) {
			if err := s.Egress.EgressServiceV1().EgressServices(lab.Namespace).Delete(t.Context(), e.name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, false, figures.ResetConnection},
	} {
		t.Run(step.name, func(t *testing.T) {
			s.beginAgain(t, streams)
			took := during(func() { step.run(t) })
			figures.Record(t, "EgressService, open connections: "+step.name, step.bound, s.wentOn(t, streams, step.same, took)...)
		})
	}
}

// openStreams starts, for each family, a pod behind the Service that keeps a connection to the
// outside busy, and returns the names of the pods.
func (e *served) openStreams(t *testing.T) []string {
	t.Helper()
	var names []string
	for i := range lab.OutsideAddresses {
		names = append(names, fmt.Sprintf("%s-stream-%d", e.name, i))
	}
	// On a node that is never host: a stream must not die with its host.
	err := atOnce(len(names), func(i int) error {
		_, err := e.RunLabelledStream(t.Context(), names[i], lab.ControlPlane, e.labels(), lab.OutsideAddresses[i])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// allFlow waits until all streams carry traffic.
func (s *suite) allFlow(t *testing.T, streams []string) {
	t.Helper()
	if err := atOnce(len(streams), func(i int) error { return s.flows(t.Context(), streams[i]) }); err != nil {
		t.Error(err)
	}
}

// beginAgain waits until streams carry traffic, and resets their reports.
func (s *suite) beginAgain(t *testing.T, streams []string) {
	t.Helper()
	s.allFlow(t, streams)
	err := atOnce(len(streams), func(i int) error {
		_, err := s.Report(t.Context(), streams[i], true)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wentOn waits until streams carry traffic again, checks how each got there, and returns how long
// each stalled.
func (s *suite) wentOn(t *testing.T, streams []string, same bool, took time.Duration) []time.Duration {
	t.Helper()
	gaps := make([]time.Duration, len(streams))
	err := atOnce(len(streams), func(i int) (err error) {
		gaps[i], err = s.goesOn(t, streams[i], same, took)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return gaps
}

// settledEchoes is how many messages a connection must carry before it counts as settled: two seconds of them.
const settledEchoes = 40

// goesOn is wentOn for one stream.
func (s *suite) goesOn(t *testing.T, stream string, same bool, took time.Duration) (time.Duration, error) {
	t.Helper()
	if err := s.flows(t.Context(), stream); err != nil {
		return 0, err
	}
	first := -1
	err := lab.Until(t.Context(), settledTCP, stream+" to have settled", func(ctx context.Context) error {
		r, err := s.Report(ctx, stream, false)
		if err != nil {
			return err
		}
		if first < 0 || r.Echoed < first { // it may have been restarted
			first = r.Echoed
		}
		switch {
		case !same && r.Reconnects == 0:
			return fmt.Errorf("the connection with the old address was not reset: %+v", r)
		case same && r.Reconnects == 0 && r.Echoed < first+settledEchoes: // what breaks it may still be on its way to the nodes
			return fmt.Errorf("only %d messages since it carries traffic again: %+v", r.Echoed-first, r)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err := s.flows(t.Context(), stream); err != nil {
		return 0, err
	}
	r, err := s.Report(t.Context(), stream, false)
	if err != nil {
		return 0, err
	}
	t.Logf("%s: longest gap %s, %d reconnects, %d echoes; the change took %s", stream, r.MaxGap(), r.Reconnects, r.Echoed, took)
	if same && r.Reconnects > 0 {
		return r.MaxGap(), fmt.Errorf("%s broke %d times, though its address stays: %s", stream, r.Reconnects, r.LastError)
	}
	return r.MaxGap(), nil
}
