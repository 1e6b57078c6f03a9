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

// connections keeps TCP connections to the outside busy while their host changes in
// order and while the EgressService goes: each goes on, or is reset at once and can be
// made anew; none hangs. What the death of a host does to them FailoverLatency looks at.
func (s *suite) connections(t *testing.T) {
	e := s.serve(t, "tcp", tcpIngress)
	e.announce(t)
	host := e.programmed(t, "")
	streams := e.openStreams(t)
	e.steered(t, len(streams))
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
		// same: neither address nor port of a connection changes, so it goes on.
		same  bool
		bound figures.Bound
	}{
		{"planned move", func(t *testing.T) {
			s.cordon(t, host, true)
			next := e.programmed(t, host)
			s.cordon(t, host, false)
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

// openStreams starts a pod behind the Service for each family that keeps a connection to
// the outside busy, and returns their names.
func (e *served) openStreams(t *testing.T) []string {
	t.Helper()
	var names []string
	for i, to := range lab.OutsideAddresses {
		name := fmt.Sprintf("%s-stream-%d", e.name, i)
		// On a node that is no host: it must not die with one.
		if _, err := e.RunLabelledStream(t.Context(), name, lab.ControlPlane, e.labels(), to); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// beginAgain waits until streams carry traffic, and forgets what was.
func (s *suite) beginAgain(t *testing.T, streams []string) {
	t.Helper()
	for _, name := range streams {
		s.flows(t, name)
		if _, err := s.Report(t.Context(), name, true); err != nil {
			t.Fatal(err)
		}
	}
}

// wentOn waits until streams carry traffic again, looks at how each got there, and
// returns how long each stood still.
func (s *suite) wentOn(t *testing.T, streams []string, same bool, took time.Duration) (gaps []time.Duration) {
	t.Helper()
	for _, name := range streams {
		gaps = append(gaps, s.goesOn(t, name, same, took))
	}
	return gaps
}

// goesOn is wentOn of one stream.
func (s *suite) goesOn(t *testing.T, stream string, same bool, took time.Duration) time.Duration {
	t.Helper()
	s.flows(t, stream)
	err := lab.Until(t.Context(), settledTCP, stream+" to have settled", func(ctx context.Context) error {
		r, err := s.Report(ctx, stream, false)
		if err == nil && !same && r.Reconnects == 0 {
			err = fmt.Errorf("the connection with the old address was not reset: %+v", r)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	s.flows(t, stream)
	r, err := s.Report(t.Context(), stream, false)
	if err != nil {
		t.Fatal(err)
	}
	if same && r.Reconnects > 0 {
		t.Errorf("%s broke %d times, though its address stays: %s", stream, r.Reconnects, r.LastError)
	}
	t.Logf("%s: longest gap %s, %d reconnects, %d echoes; the change took %s", stream, r.MaxGap(), r.Reconnects, r.Echoed, took)
	return r.MaxGap()
}
