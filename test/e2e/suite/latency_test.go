package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

var latencyIngress = []netip.Addr{netip.MustParseAddr("5.5.5.10"), netip.MustParseAddr("5555::a")}

const (
	// latencyPort is the port that the pod whose packets are timed sends to; pods on the workers
	// send to the next port.
	latencyPort = 11000
	// latencyRuns is how often the host dies; FAILOVER_RUNS overrides it.
	latencyRuns = 1
)

// phases are the phases of a failover, in order; each ends with what it is named after.
var phases = []string{"detect", "decide", "host ready", "NB", "SB and flows", "host to wire", "whole"}

// latency repeatedly cuts the host's power and measures how long it takes until packets of the next
// host are outside, and where the time goes. Meanwhile pods on all nodes send, the host's own too
// when it boots: none of their packets may have another source. Open connections continue.
func (s *suite) latency(t *testing.T) {
	// On a busy machine the other node may be considered dead while one is.
	e := s.serve(t, "latency", latencyIngress, func(eg *v1.EgressService) { eg.Spec.OnUnavailable = v1.UnavailableDrop })
	e.announce(t)
	host := e.programmed(t, "")
	c := newCapture(t, s, latencyPort, latencyPort+1, latencyIngress)
	streams := e.openStreams(t)
	l := &leakTest{served: e, capture: c}
	for _, node := range nodes {
		sender := lab.Sender{Name: l.podOn(node), Node: node, Labels: e.labels(), To: lab.OutsideAddresses, Port: latencyPort + 1}
		if node == lab.ControlPlane {
			sender.Port, sender.Every = latencyPort, 5*time.Millisecond
		}
		if err := s.StartSender(t.Context(), sender); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range nodes {
		l.runs(t, node, "")
	}
	e.steered(t, len(nodes)+len(streams))
	all := map[string][]time.Duration{}
	var stood []time.Duration
	for run := range number("FAILOVER_RUNS", latencyRuns) {
		t.Run(fmt.Sprint(run+1), func(t *testing.T) {
			container := l.runs(t, host, "")
			s.beginAgain(t, streams)
			next, took := e.failover(t, c, host)
			for _, p := range phases {
				all[p] = append(all[p], took[p])
			}
			stood = append(stood, s.wentOn(t, streams, true, took["whole"])...)
			s.rejoin(t, host)
			c.tap(t, host)
			l.runs(t, host, container)
			e.steered(t, len(nodes)+len(streams))
			host = next
		})
		if t.Failed() {
			return
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-14s %8s %8s\n", "", "median", "worst")
	for _, p := range phases {
		d := slices.Sorted(slices.Values(all[p]))
		fmt.Fprintf(&table, "%-14s %8d %8d\n", p, d[(len(d)-1)/2].Milliseconds(), d[len(d)-1].Milliseconds())
	}
	t.Logf("from the loss of power to the first packet by the next host, %d runs, in ms:\n%s", len(all["whole"]), table.String())
	figures.Record(t, "EgressService, failover", figures.EgressServiceFailover, all["whole"]...)
	figures.Record(t, "EgressService, open connections: power failure", figures.OpenConnectionFailover, stood...)
	t.Logf("%d packets with the right source", c.inspect(t))
}

// failover kills the host and returns the next one, and how long each part took.
func (e *served) failover(t *testing.T, c *capture, host string) (next string, took map[string]time.Duration) {
	t.Helper()
	next = otherWorker(host)
	// Packets that reach the next host through its management port can only be from pods of the
	// EgressService: they come once it becomes host.
	management, err := e.Capture(t.Context(), next, "ovn-k8s-mp0", fmt.Sprintf("udp dst port %d", latencyPort))
	if err != nil {
		t.Fatal(err)
	}
	defer management.Close()
	c.release(t, host)
	before := time.Now()
	if err := e.Kin.Node(t.Context(), "kill", host); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	if got := e.programmed(t, host); got != next {
		t.Fatalf("%s took over, want %s", got, next)
	}
	at := map[string]time.Time{"whole": c.arrives(t, latencyPort, after)}
	outside, err := c.taps[lab.Outside].Packets()
	if err != nil {
		t.Fatal(err)
	}
	right, _ := c.sort(outside)
	// The last packet of the old host shows when its power went, to within the sending interval.
	died := before
	for _, p := range right {
		if p.At.After(died) && p.At.Before(after) {
			died = p.At
		}
	}
	at["host to wire"] = at["whole"]
	var steered []lab.Packet
	err = lab.Until(t.Context(), leakPatience, "packets at the management port of "+next, func(context.Context) (err error) {
		if steered, err = management.Packets(); err == nil && len(steered) == 0 {
			err = errors.New("none so far") // another capture shows them
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	at["SB and flows"] = steered[0].At
	for phase, find := range map[string]struct{ node, daemon, text string }{
		"detect":     {lab.ControlPlane, "ovnkube-master", `"Reachability of a node changed" node="` + host + `" from="alive" to="dead"`},
		"decide":     {lab.ControlPlane, "ovnkube-master", `"Host changed" egressService="` + lab.Namespace + "/" + e.name + `"`},
		"host ready": {next, "ovnkube-node", `"Rules written" egressService="` + lab.Namespace + "/" + e.name + `"`},
		"NB":         {lab.ControlPlane, "ovnkube-master", `"Policies written" egressService="` + lab.Namespace + "/" + e.name + `"`},
	} {
		if at[phase], err = e.logged(t.Context(), find.node, find.daemon, find.text, died); err != nil {
			t.Fatal(err)
		}
	}
	took, last := map[string]time.Duration{"whole": at["whole"].Sub(died)}, died
	for _, phase := range phases[:len(phases)-1] {
		took[phase], last = at[phase].Sub(last), at[phase]
	}
	t.Logf("%s to %s: %v", host, next, took)
	return next, took
}

// logged returns when a daemon first logged a line with a text after the given time.
func (s *suite) logged(ctx context.Context, node, daemon, text string, after time.Time) (at time.Time, err error) {
	err = lab.Until(ctx, 10*time.Second, daemon+" to log "+text, func(ctx context.Context) error {
		log, err := s.Logs(ctx, node, daemon)
		if err != nil {
			return err
		}
		for line := range strings.Lines(log) {
			if !strings.Contains(line, text) {
				continue
			}
			fields := strings.Fields(line)
			i := slices.IndexFunc(fields, func(f string) bool { return len(f) == 5 && strings.ContainsAny(f[:1], "IWE") })
			if i < 0 || i+1 >= len(fields) {
				continue
			}
			when, err := time.ParseInLocation("2006 0102 15:04:05.000000",
				fmt.Sprintf("%d %s %s", after.Year(), fields[i][1:], fields[i+1]), time.Local)
			if err != nil {
				return fmt.Errorf("read the time of %q: %w", line, err)
			}
			if !when.Before(after) {
				at = when
				return nil
			}
		}
		return fmt.Errorf("no such line since %s", after)
	})
	return at, err
}

func otherWorker(node string) string {
	if node == nodes[1] {
		return nodes[2]
	}
	return nodes[1]
}

// candidate waits until the master knows that a node is reachable again.
func (s *suite) candidate(t *testing.T, node string) {
	t.Helper()
	const text = `"Reachability of a node changed" node="%s" from="`
	err := lab.Until(t.Context(), leakPatience, node+" to be reachable", func(ctx context.Context) error {
		log, err := s.Logs(ctx, lab.ControlPlane, "ovnkube-master")
		if err != nil {
			return err
		}
		last := ""
		for line := range strings.Lines(log) {
			if strings.Contains(line, fmt.Sprintf(text, node)) {
				last = line
			}
		}
		if !strings.Contains(last, `to="alive"`) {
			return fmt.Errorf("last said: %s", last)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
