package suite

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

var tcpIngress = []netip.Addr{netip.MustParseAddr("5.5.5.8"), netip.MustParseAddr("5555::8")}

// interrupted is how long a connection may stand still: what the host is missing
// for, and TCP's own pause before it sends again.
const interrupted = 10 * time.Second

// connections keeps TCP connections to the outside busy while their host changes
// and while the EgressService comes and goes: each goes on, or is reset at once and
// can be made anew; none hangs.
func (s *suite) connections(t *testing.T) {
	e := s.serve(t, "tcp", tcpIngress)
	e.announce(t)
	host := e.programmed(t, "")
	var streams []string
	for i, to := range lab.OutsideAddresses {
		name := fmt.Sprintf("tcp-%d", i)
		// On a node that is no host: it must not die with one.
		if _, err := s.RunLabelledStream(t.Context(), name, lab.ControlPlane, e.labels(), to); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, name)
	}
	e.steered(t, len(streams))
	var died string
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
		// same: neither address nor port of a connection changes, so it goes on.
		same bool
	}{
		{"planned move", func(t *testing.T) {
			s.cordon(t, host, true)
			next := e.programmed(t, host)
			s.cordon(t, host, false)
			host = next
		}, true},
		{"host loses power", func(t *testing.T) {
			if err := s.Kin.Node(t.Context(), "kill", host); err != nil {
				t.Fatal(err)
			}
			died = host
			host = e.programmed(t, died)
		}, true},
		{"EgressService deleted", func(t *testing.T) {
			if err := s.Egress.EgressServiceV1().EgressServices(lab.Namespace).Delete(t.Context(), e.name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		if died != "" {
			s.powerOn(t, died)
			died = ""
		}
		t.Run(step.name, func(t *testing.T) {
			for _, name := range streams {
				s.flows(t, name)
				if _, err := s.Report(t.Context(), name, true); err != nil {
					t.Fatal(err)
				}
			}
			took := during(func() { step.run(t) })
			for _, name := range streams {
				s.goesOn(t, name, step.same, took)
			}
		})
	}
}

// goesOn waits until a stream carries traffic again, and looks at how it got there.
func (s *suite) goesOn(t *testing.T, stream string, same bool, took time.Duration) {
	t.Helper()
	s.flows(t, stream)
	var r lab.StreamReport
	err := lab.Until(t.Context(), interrupted, stream+" to have settled", func(ctx context.Context) (err error) {
		r, err = s.Report(ctx, stream, false)
		if err == nil && !same && r.Reconnects == 0 {
			err = fmt.Errorf("the connection with the old address was not reset: %+v", r)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	s.flows(t, stream)
	if r, err = s.Report(t.Context(), stream, false); err != nil {
		t.Fatal(err)
	}
	if gap := time.Duration(r.MaxGapMillis) * time.Millisecond; gap > interrupted {
		t.Errorf("%s stood still for %s", stream, gap)
	}
	if same && r.Reconnects > 0 {
		t.Errorf("%s broke %d times, though its address stays", stream, r.Reconnects)
	}
	t.Logf("%s: longest gap %d ms, %d reconnects, %d echoes; the change took %s", stream, r.MaxGapMillis, r.Reconnects, r.Echoed, took)
}
