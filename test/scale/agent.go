package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/ovnkube/ovnkube/test/scale/load"
	"github.com/ovnkube/ovnkube/test/scale/plane"
	"github.com/ovnkube/ovnkube/test/scale/result"
)

// agentNode is the number of the node whose agent is measured: the first one that may hold
// egress addresses.
const agentNode = 2

// agentBench measures the agent of a node, in a cluster where everything is in
// place and only the agent has anything to do.
type agentBench struct {
	*bench
	host  *plane.Host
	agent *plane.Agent
	execs *plane.Execs
	flows *plane.Changes // of flows of the external bridge; nil while there is none
	rules *plane.Changes // of the node's packet filter
	// switchIdle is the share of a CPU that the switch uses when idle.
	switchIdle float64
}

// measureAgent measures starts of an agent, and the cost of changes.
func measureAgent(ctx context.Context, o options) error {
	b, end, err := begin(ctx, o)
	if err != nil {
		return err
	}
	defer end()
	if err := b.makeServed(ctx); err != nil {
		return err
	}
	a := &agentBench{bench: b}
	if a.host, err = b.plane.StartHost(ctx, load.Node(agentNode)); err != nil {
		return err
	}
	if a.execs, err = plane.WatchExecs(); err != nil {
		return err
	}
	defer a.execs.Close()
	if err := a.host.Connect(); err != nil {
		return err
	}
	if err := a.start(ctx, "agent started on a new node"); err != nil {
		return err
	}
	if a.flows, err = a.host.WatchFlows(plane.ExternalBridge); err != nil {
		return err
	}
	defer a.flows.Close()
	if a.rules, err = a.host.WatchRules(ctx); err != nil {
		return err
	}
	for range b.repeat {
		a.agent.Stop()
		if err := a.start(ctx, "agent restarted"); err != nil {
			return err
		}
	}
	if err := a.measureIdle(ctx); err != nil {
		return err
	}
	return a.events(ctx)
}

// agentMark is the state of all counters at a time.
type agentMark struct {
	at             time.Time
	flows, rules   int
	cpu, switchCPU time.Duration
	sent, received int64
	execs          map[string]int
}

func (a *agentBench) mark() (agentMark, error) {
	if _, err := a.plane.Requests(); err != nil {
		return agentMark{}, err
	}
	m := agentMark{switchCPU: a.host.Switch.CPU(), execs: a.execs.Counts()}
	if a.flows != nil {
		m.flows = a.flows.Count()
	}
	if a.rules != nil {
		m.rules = a.rules.Count()
	}
	m.sent, m.received = a.host.Traffic()
	if a.agent != nil {
		m.cpu = a.cpu()
		a.agent.ResetPeak()
	}
	m.at = time.Now()
	return m, nil
}

// cpu returns the CPU time of the agent and of the programs that it has started.
func (a *agentBench) cpu() time.Duration { return a.agent.CPU() + a.agent.ChildrenCPU() }

// changes returns the times at which flows and rules have changed since a mark.
func (a *agentBench) changes(m agentMark) []time.Time {
	var all []time.Time
	if a.flows != nil {
		all = a.flows.Since(m.flows)
	}
	if a.rules != nil {
		all = append(all, a.rules.Since(m.rules)...)
	}
	return all
}

// record records what has happened since a mark.
func (a *agentBench) record(phase string, m agentMark, done time.Time, more func(*result.Result)) error {
	r := result.Result{Size: a.size, Phase: phase, Done: milliseconds(m.at, done)}
	span := time.Since(m.at).Seconds()
	r.CPU = max(0, (a.cpu()-m.cpu).Seconds()-a.idle*span)
	r.SwitchCPU = max(0, (a.host.Switch.CPU()-m.switchCPU).Seconds()-a.switchIdle*span)
	now, peak := a.agent.Memory()
	r.Settled, r.Peak = float64(now)/mebi, float64(peak)/mebi
	sent, received := a.host.Traffic()
	r.Sent, r.Received = sent-m.sent, received-m.received
	if a.flows != nil {
		r.Changed = len(a.flows.Since(m.flows))
	}
	if changes := a.changes(m); len(changes) > 0 {
		r.First, r.Rows = milliseconds(m.at, slices.MinFunc(changes, time.Time.Compare)), milliseconds(m.at, slices.MaxFunc(changes, time.Time.Compare))
	}
	r.Execs = map[string]int{}
	for name, n := range a.execs.Counts() {
		if n > m.execs[name] {
			r.Execs[name] = n - m.execs[name]
		}
	}
	var err error
	if r.Requests, err = a.plane.Requests(); err != nil {
		return err
	}
	// This comes last, since it runs a program itself.
	if r.Flows, err = a.host.Flows(plane.ExternalBridge); err != nil {
		return err
	}
	if more != nil {
		more(&r)
	}
	a.say("%-38s first %5.0f ms, flows %5.0f ms, done %6.0f ms, CPU %6.3f s, switch %6.3f s, %3.0f MiB, then %3.0f MiB, %d of %d flows, programs %v, API %v, %d KB",
		phase, r.First, r.Rows, r.Done, r.CPU, r.SwitchCPU, r.Peak, r.Settled, r.Changed, r.Flows, r.Execs, r.Requests, r.Received/1000)
	return result.Append(a.out, r)
}

// start measures the start of the agent. It is done when pods can be attached; the measurement
// ends when the agent has nothing left to do.
func (a *agentBench) start(ctx context.Context, phase string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	a.agent, a.idle, a.switchIdle = nil, 0, 0
	m, err := a.mark()
	if err != nil {
		return err
	}
	if a.agent, err = a.host.StartAgent(); err != nil {
		return err
	}
	end := a.bench.profile(ctx, a.agent.Served, phase)
	var listens, done time.Time
	err = plane.Until(ctx, "the agent to serve pods", func() error {
		if err := a.plane.Failed(); err != nil {
			return err
		}
		if listens.IsZero() {
			connection, err := net.Dial("unix", a.agent.Socket)
			if err != nil {
				return err
			}
			_ = connection.Close()
			listens = time.Now()
		}
		_, err := os.Stat(a.agent.Conf)
		return err
	})
	if err != nil {
		return err
	}
	done = time.Now()
	idle, err := a.awaitIdle(ctx, a.agent.Process, 0, m.at)
	if err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	if idle.Before(done) {
		idle = done
	}
	a.say("%s: the CNI socket is there after %.0f ms, idle after %.0f ms", phase, milliseconds(m.at, listens), milliseconds(m.at, idle))
	return a.record(phase, m, done, func(r *result.Result) {
		r.Kinds = map[string]float64{"CNI socket": milliseconds(m.at, listens), "idle": milliseconds(m.at, idle)}
	})
}

// measureIdle measures what the agent and the switch use when idle.
func (a *agentBench) measureIdle(ctx context.Context) error {
	const span = 10 * time.Second
	cpu, switchCPU := a.cpu(), a.host.Switch.CPU()
	select {
	case <-time.After(span):
	case <-ctx.Done():
		return ctx.Err()
	}
	a.idle, a.switchIdle = (a.cpu()-cpu).Seconds()/span.Seconds(), (a.host.Switch.CPU()-switchCPU).Seconds()/span.Seconds()
	a.say("idle: %.4f of a processor, the switch %.4f", a.idle, a.switchIdle)
	return nil
}

// agentEvent is a change whose effect on the agent is measured, without its preparation. It is complete
// after at least the given numbers of changes of flows and of rules, and when done.
type agentEvent struct {
	phase        string
	prepare      func(ctx context.Context) error
	cause        func(ctx context.Context) error
	flows, rules int
	done         func(ctx context.Context) error
}

func (a *agentBench) measureEvent(ctx context.Context, e agentEvent) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	if e.prepare != nil {
		if err := e.prepare(ctx); err != nil {
			return fmt.Errorf("prepare %s: %w", e.phase, err)
		}
		if err := a.settle(ctx, agentMark{flows: a.flows.Count(), rules: a.rules.Count()}); err != nil {
			return err
		}
	}
	m, err := a.mark()
	if err != nil {
		return err
	}
	if err := e.cause(ctx); err != nil {
		return fmt.Errorf("%s: %w", e.phase, err)
	}
	var done time.Time
	err = plane.Until(ctx, e.phase, func() error {
		if err := a.plane.Failed(); err != nil {
			return err
		}
		if n, rules := a.flows.Count()-m.flows, a.rules.Count()-m.rules; n < e.flows || rules < e.rules {
			return fmt.Errorf("%d flows and %d rules have changed, not %d and %d", n, rules, e.flows, e.rules)
		}
		if e.done != nil {
			return e.done(ctx)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if e.done != nil {
		done = time.Now()
	}
	if err := a.settle(ctx, m); err != nil {
		return err
	}
	return a.record(e.phase, m, done, nil)
}

// settle waits until for a while no flow or rule was changed and no program was started.
func (a *agentBench) settle(ctx context.Context, m agentMark) error {
	began := time.Now()
	return plane.Until(ctx, "flows to settle", func() error {
		last := slices.MaxFunc(append(a.changes(m), began, a.execs.Last()), time.Time.Compare)
		if time.Since(last) < quiet {
			return errors.New("flows have just changed, or a program was started")
		}
		return nil
	})
}
