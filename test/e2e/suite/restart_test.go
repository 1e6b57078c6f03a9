package suite

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// process is one to kill in the middle of everything.
type process struct {
	name, node string
	pattern    string // of its command line
	// gap is how long established connections may stand still.
	gap time.Duration
	// ready is the port of its /readyz; 0 where it has none.
	ready int
	// forgets says that the process holds the connections' state: they may break,
	// and must be possible again.
	forgets bool
}

const (
	// unnoticed is the gap where no packet depends on the process; the machine
	// may be busy.
	unnoticed = 2 * time.Second
	// noticed is the gap where packets stop until the process is back.
	noticed = 20 * time.Second
)

var processes = []process{
	{name: "ovnkube master", node: lab.ControlPlane, pattern: "ovnkube .*--init-master", ready: 9409, gap: unnoticed},
	{name: "ovnkube node", node: "ovn-worker", pattern: "ovnkube .*--init-node", ready: 9410, gap: unnoticed},
	{name: "ovnkube node of control plane", node: lab.ControlPlane, pattern: "ovnkube .*--init-node", ready: 9410, gap: unnoticed},
	{name: "northbound database", node: lab.ControlPlane, pattern: "ovsdb-server .*ovnnb_db.db", gap: unnoticed},
	{name: "southbound database", node: lab.ControlPlane, pattern: "ovsdb-server .*ovnsb_db.db", gap: unnoticed},
	{name: "northd", node: lab.ControlPlane, pattern: "^ovn-northd ", gap: unnoticed},
	{name: "ovn-controller", node: "ovn-worker", pattern: "^ovn-controller ", gap: noticed},
	{name: "switch database", node: "ovn-worker", pattern: "ovsdb-server .*conf.db", gap: noticed},
	{name: "switch", node: "ovn-worker", pattern: "^ovs-vswitchd ", gap: noticed, forgets: true},
}

// restarts kills each process while traffic flows. Afterwards the databases and
// the hosts must be exactly as before, and no connection may have suffered more
// than it must.
func (s *suite) restarts(t *testing.T) {
	streams := s.streams(t)
	before := s.steadyState(t)
	for _, p := range processes {
		t.Run(p.name, func(t *testing.T) {
			for _, stream := range streams {
				if _, err := s.Report(t.Context(), stream, true); err != nil {
					t.Fatal(err)
				}
			}
			s.kill(t, p)
			s.sameState(t, before)
			for _, stream := range streams {
				s.survived(t, stream, p)
			}
		})
	}
	for _, stream := range streams {
		if err := s.DeletePod(t.Context(), stream); err != nil {
			t.Error(err)
		}
	}
}

// streams starts a busy connection for each family to a pod on the other worker
// and to the outside, and waits until each carries traffic.
func (s *suite) streams(t *testing.T) []string {
	var names []string
	for family, is4 := range map[string]bool{"v4": true, "v6": false} {
		outside, err := pick(lab.OutsideAddresses, is4)
		if err != nil {
			t.Fatal(err)
		}
		across := s.servers["b"].Address(is4)
		for name, to := range map[string]netip.Addr{"across-" + family: across, "outside-" + family: outside} {
			if _, err := s.RunStream(t.Context(), "stream-"+name, "ovn-worker", to); err != nil {
				t.Fatal(err)
			}
			names = append(names, "stream-"+name)
		}
	}
	for _, name := range names {
		s.flows(t, name)
	}
	return names
}

// flows waits until a stream carries traffic now.
func (s *suite) flows(t *testing.T, stream string) {
	t.Helper()
	first := -1
	err := lab.Until(t.Context(), noticed, stream+" to carry traffic", func(ctx context.Context) error {
		r, err := s.Report(ctx, stream, false)
		if err != nil {
			return err
		}
		if first < 0 || r.Echoed < first {
			first = r.Echoed
		}
		if r.Echoed <= first {
			return fmt.Errorf("no echo since the first look: %+v", r)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func (s *suite) survived(t *testing.T, stream string, p process) {
	t.Helper()
	s.flows(t, stream)
	r, err := s.Report(t.Context(), stream, false)
	if err != nil {
		t.Fatal(err)
	}
	if r.Reconnects > 0 && !p.forgets {
		t.Errorf("%s: the connection broke %d times", stream, r.Reconnects)
	}
	if gap := time.Duration(r.MaxGapMillis) * time.Millisecond; gap > p.gap {
		t.Errorf("%s stood still for %s, allowed is %s", stream, gap, p.gap)
	}
	t.Logf("%s: longest gap %d ms, %d reconnects, %d echoes", stream, r.MaxGapMillis, r.Reconnects, r.Echoed)
}

// kill ends a process at once and waits until its supervisor started another
// that is ready.
func (s *suite) kill(t *testing.T, p process) {
	t.Helper()
	was, err := s.pid(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kin.Exec(t.Context(), p.node, "kill", "-KILL", was); err != nil {
		t.Fatal(err)
	}
	err = lab.Until(t.Context(), 30*time.Second, p.name+" to be started again", func(ctx context.Context) error {
		is, err := s.pid(ctx, p)
		if err == nil && is == was {
			return fmt.Errorf("process %s is still there", was)
		}
		if err != nil || p.ready == 0 {
			return err
		}
		return s.readyz(ctx, p)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readyz asks a process whether it is ready.
func (s *suite) readyz(ctx context.Context, p process) error {
	address, err := s.nodeAddress(ctx, p.node, true)
	if err != nil {
		return err
	}
	return s.Get(ctx, p.node, fmt.Sprintf("http://%s:%d/readyz", address, p.ready))
}

// pid finds the one process whose command line matches.
func (s *suite) pid(ctx context.Context, p process) (string, error) {
	out, err := s.Kin.Exec(ctx, p.node, "pgrep", "-f", p.pattern)
	if err != nil {
		return "", err
	}
	pids := strings.Fields(out)
	if len(pids) != 1 {
		return "", fmt.Errorf("%s: want one process, have %v", p.name, pids)
	}
	return pids[0], nil
}

// settles is how long a state has to be the same to pass for settled: two reads, so
// far apart, find it equal.
const settles = time.Second

// steadyState reads the state until it stands still.
func (s *suite) steadyState(t *testing.T) lab.State {
	t.Helper()
	var last lab.State
	var since time.Time // that the state is as last
	err := lab.Until(t.Context(), time.Minute, "the cluster's state to stand still", func(ctx context.Context) error {
		if last != nil { // a read keeps the machine busy
			if err := pause(ctx, time.Until(since.Add(settles))); err != nil {
				return err
			}
		}
		now, err := s.State(ctx, nodes...)
		if err != nil {
			return err
		}
		if diff := last.Diff(now); diff != "" {
			last, since = now, time.Now()
			return fmt.Errorf("it just changed:\n%s", diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// sameState waits until the state is as before, and stays so.
func (s *suite) sameState(t *testing.T, before lab.State) {
	t.Helper()
	s.same(t, before, func(now lab.State) lab.State { return now })
}

// same is sameState of what a function makes of the state.
func (s *suite) same(t *testing.T, before lab.State, of func(lab.State) lab.State) {
	t.Helper()
	equal := func(ctx context.Context) error {
		now, err := s.State(ctx, nodes...)
		if err != nil {
			return err
		}
		if diff := before.Diff(of(now)); diff != "" {
			return fmt.Errorf("it differs:\n%s", diff)
		}
		return nil
	}
	err := lab.Until(t.Context(), time.Minute, "the state to be as before", func(ctx context.Context) error {
		if err := equal(ctx); err != nil {
			return err
		}
		if err := pause(ctx, settles); err != nil {
			return err
		}
		return equal(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

// pause waits for a while, or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
