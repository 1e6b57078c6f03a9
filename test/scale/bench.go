package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ovnkube/ovnkube/test/scale/agents"
	"github.com/ovnkube/ovnkube/test/scale/load"
	"github.com/ovnkube/ovnkube/test/scale/plane"
	"github.com/ovnkube/ovnkube/test/scale/proxy"
	"github.com/ovnkube/ovnkube/test/scale/result"
)

// options define what is measured.
type options struct {
	size                      load.Size
	out, profiles, logs, crds string
	cluster                   string
	repeat                    int
	plane                     plane.Config
}

// bench measures a master.
type bench struct {
	options
	began   time.Time
	plane   *plane.Plane
	clients load.Clients
	agents  *agents.Agents
	master  *plane.Master
	// controllers is how many controllers of a master say when they have started.
	controllers int
	// idle is the share of a CPU that the master uses when idle.
	idle float64
}

// globalTable is not counted: it contains the writer's name and nb_cfg.
const globalTable = "NB_Global"

const (
	// quiet is how long nothing must happen before an event counts as finished; long is the same
	// if rows of EgressIPs are removed, which are kept for a second until they are no longer needed.
	quiet = 500 * time.Millisecond
	long  = 1500 * time.Millisecond
	// After eventTimeout or startTimeout, an operation counts as stuck.
	eventTimeout = 3 * time.Minute
	startTimeout = 30 * time.Minute
)

func (b *bench) say(format string, args ...any) {
	fmt.Printf("%s %6.1f s  %s\n", time.Now().Format("15:04:05"), time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// begin starts everything except masters, until the function that it returns is called.
func begin(ctx context.Context, o options) (b *bench, end func(), err error) {
	b = &bench{options: o, began: time.Now()}
	if err := os.RemoveAll(o.out); err != nil {
		return nil, nil, err
	}
	dir, remove := o.logs, func() {}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "scale"); err != nil {
			return nil, nil, err
		}
		remove = func() { _ = os.RemoveAll(dir) }
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	if err := plane.Furnish(load.PodRange, load.NodeRange); err != nil {
		remove()
		return nil, nil, err
	}
	if o.cluster != "" {
		if err := os.MkdirAll(o.cluster, 0o700); err != nil {
			remove()
			return nil, nil, err
		}
		b.options.plane.EtcdDir = filepath.Join(o.cluster, "etcd")
	}
	b.options.plane.Dir, b.options.plane.PodRange, b.options.plane.ServiceRange = dir, load.PodRange, load.ServiceRange
	b.say("%s: %d nodes, %d pods, %d EgressServices, %d EgressIPs, %d policies, %d Services", o.size.Name, o.size.Nodes,
		o.size.Pods(), o.size.EgressServices, o.size.EgressIPs, o.size.Policies, o.size.Services)
	if b.plane, err = plane.Start(ctx, b.options.plane); err != nil {
		remove()
		return nil, nil, err
	}
	b.say("etcd, the API server, the databases and northd run")
	return b, func() {
		b.plane.Close()
		remove()
	}, nil
}

// measure measures everything, and appends the results to a new file.
func measure(ctx context.Context, o options) (err error) {
	b, end, err := begin(ctx, o)
	if err != nil {
		return err
	}
	defer end()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.agents.Close()) }()
	if err := b.starts(ctx); err != nil {
		return err
	}
	if err := b.ask(ctx, b.questions()); err != nil {
		return err
	}
	if err := b.events(ctx); err != nil {
		return err
	}
	if err := b.leaderChange(ctx); err != nil {
		return err
	}
	return b.northboundLeaderLost(ctx)
}

// mark is the state of all counters at a time.
type mark struct {
	at             time.Time
	transactions   int
	cpu            time.Duration
	sent, received int64
}

// mark returns the current state of the counters.
func (b *bench) mark() (mark, error) {
	if _, err := b.plane.Writes(); err != nil {
		return mark{}, err
	}
	m := mark{transactions: b.plane.Proxy.Count()}
	m.sent, m.received = b.plane.Proxy.Bytes()
	if b.master != nil {
		m.cpu = b.master.CPU()
		b.master.ResetPeak()
	}
	m.at = time.Now()
	return m, nil
}

// changes returns the times of the first and the last change of rows since a mark; the zero time if
// there were none.
func (b *bench) changes(m mark) (first, last time.Time) {
	for _, t := range b.plane.Proxy.Since(m.transactions) {
		if t.Changes(globalTable) == 0 {
			continue
		}
		if first.IsZero() {
			first = t.Answered
		}
		last = t.Answered
	}
	return first, last
}

// settle waits until no row has changed for the duration quiet after done.
func (b *bench) settle(ctx context.Context, m mark, done time.Time, quiet time.Duration) error {
	return plane.Until(ctx, "rows to settle", func() error {
		if err := b.plane.Failed(); err != nil {
			return err
		}
		_, last := b.changes(m)
		if last.Before(done) {
			last = done
		}
		if since := time.Since(last); since < quiet {
			return fmt.Errorf("the last change was %s ago", since)
		}
		return nil
	})
}

func milliseconds(from, to time.Time) float64 {
	if to.IsZero() {
		return 0
	}
	return float64(to.Sub(from).Microseconds()) / 1000
}

const mebi = 1 << 20

// record records what has happened since a mark.
func (b *bench) record(phase string, m mark, done time.Time, more func(*result.Result)) error {
	r := result.Result{Size: b.size, Phase: phase, Done: milliseconds(m.at, done)}
	first, last := b.changes(m)
	r.First, r.Rows = milliseconds(m.at, first), milliseconds(m.at, last)
	for _, t := range b.plane.Proxy.Since(m.transactions) {
		if n := t.Changes(); n > 0 {
			r.Transactions++
			r.Changed += n
		}
	}
	sent, received := b.plane.Proxy.Bytes()
	r.Sent, r.Received = sent-m.sent, received-m.received
	r.CPU = max(0, (b.master.CPU()-m.cpu).Seconds()-b.idle*time.Since(m.at).Seconds())
	now, peak := b.master.Memory()
	r.Settled, r.Peak = float64(now)/mebi, float64(peak)/mebi
	writes, err := b.plane.Writes()
	if err != nil {
		return err
	}
	r.Writes = writes
	if more != nil {
		more(&r)
	}
	b.say("%-28s first %6.0f ms, rows %6.0f ms, done %6.0f ms, CPU %5.2f s, %3.0f MiB, %d transactions, %d rows, %d API writes",
		phase, r.First, r.Rows, r.Done, r.CPU, r.Peak, r.Transactions, r.Changed, r.AllWrites())
	return result.Append(b.out, r)
}

// kinds returns when the last row of each kind was inserted since a mark.
func (b *bench) kinds(m mark) map[string]float64 {
	at := map[string]float64{}
	for _, t := range b.plane.Proxy.Since(m.transactions) {
		for kind := range t.Inserted {
			at[name(kind)] = milliseconds(m.at, t.Answered)
		}
	}
	return at
}

// name returns what rows of a kind are for; ports have a name of their own, since pods wait for them.
func name(k proxy.Kind) string {
	if k.Feature == "pod" && k.Table == "Logical_Switch_Port" {
		return "ports of pods"
	}
	return k.Feature
}
