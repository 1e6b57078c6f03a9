package metallb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// transcript collects the output of a running program, line by line.
type transcript struct {
	mu    sync.Mutex
	lines []string
	rest  []byte
}

// Write implements io.Writer.
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest = append(t.rest, p...)
	for {
		line, rest, found := bytes.Cut(t.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		t.lines = append(t.lines, string(line))
		t.rest = rest
	}
}

func (t *transcript) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines[:len(t.lines):len(t.lines)]
}

// watcher is a probe that asks continuously.
type watcher struct {
	name, direction string
	want            []string // the correct answers
	said            *transcript
}

// The directions of connections.
const (
	fromPods    = "from pods"
	fromOutside = "from outside"
)

// answer is one answer and when it came.
type answer struct {
	at   time.Time
	text string
}

// watchFromPod has a pod continuously ask the outside host which address it sees.
func (c *cluster) watchFromPod(t *testing.T, namespace, pod string) *watcher {
	t.Helper()
	args := append(c.Kubectl(), "exec", "-i", "-n", namespace, pod, "--", "/probe", "watch", lab.URL(outside, "/clientip"))
	w := &watcher{pod + " to " + outside.String(), fromPods, []string{ingress.String()}, &transcript{}}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = w.said, w.said
	cmd.WaitDelay = 5 * time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { finish(t, w.name, stdin, cmd.Wait) })
	return w
}

// finish ends a program by closing its input.
func finish(t *testing.T, name string, stdin io.Closer, wait func() error) {
	if err := errors.Join(stdin.Close(), wait()); err != nil {
		t.Logf("end of %s: %v", name, err)
	}
}

// run runs a command on a machine until the test ends or the machine stops.
func (c *cluster) run(t *testing.T, machine string, command ...string) *transcript {
	t.Helper()
	said := &transcript{}
	k := c.Kin
	k.Log = said
	attached, err := k.ExecAttached(machine, command...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = attached.Close() }) // the machine may have lost power
	return said
}

// watchFromOutside has the outside host continuously ask the endpoints for their names.
func (c *cluster) watchFromOutside(t *testing.T, pods []string) *watcher {
	t.Helper()
	said := c.run(t, lab.Outside, lab.MachineProbe, "watch", lab.URL(ingress, "/hostname"))
	return &watcher{"outside to " + ingress.String(), fromOutside, pods, said}
}

// answers returns what the watcher has got so far.
func (w *watcher) answers() ([]answer, error) {
	var got []answer
	for _, line := range w.said.all() {
		stamp, text, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			return nil, fmt.Errorf("%s: %q", w.name, line)
		}
		got = append(got, answer{at, text})
	}
	return got, nil
}

// going waits until there are several answers after the given time.
func (w *watcher) going(t *testing.T, after time.Time) {
	t.Helper()
	until(t, w.name, func(context.Context) error {
		got, err := w.answers()
		if err != nil {
			return err
		}
		const several = 10
		if len(got) < several || !got[len(got)-several].at.After(after) {
			return fmt.Errorf("no %d answers after %s", several, after)
		}
		return nil
	})
}

// gap returns the longest time without an answer that ended after the given time.
func (w *watcher) gap(t *testing.T, after time.Time) (longest time.Duration) {
	t.Helper()
	got, err := w.answers()
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(got); i++ {
		if got[i].at.After(after) {
			longest = max(longest, got[i].at.Sub(got[i-1].at))
		}
	}
	return longest
}

// capture records the packets to the outside host's server that pass a machine's uplink. A machine that
// lost power needs it again.
func (e *example) capture(t *testing.T, machine string) {
	t.Helper()
	if machine != lab.Outside { // it has a server
		if err := e.SendProbe(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	c, err := e.Capture(t.Context(), machine, "eth0", fmt.Sprintf("tcp dst port %d and dst host %s", lab.ServePort, outside))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	e.captures[machine] = c
}

// inspect fails the test for packets with another source than the address of the Service at a machine,
// and for a capture that does not see any.
func (e *example) inspect(t *testing.T, machine string) {
	t.Helper()
	packets, err := e.captures[machine].Proven(t.Context(), "tcp", netip.AddrPortFrom(outside, lab.ServePort))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[netip.Addr]int{}
	for _, p := range packets {
		counts[p.Source.Addr()]++
	}
	right := counts[ingress]
	delete(counts, ingress)
	if len(counts) > 0 {
		t.Errorf("packets with another source at %s: %v", machine, counts)
	}
	t.Logf("%s saw %d packets from %s", machine, right, ingress)
	if machine == lab.Outside && right == 0 {
		t.Error("no packet arrived outside")
	}
}
