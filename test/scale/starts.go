package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovnkube/ovnkube/test/scale/agents"
	"github.com/ovnkube/ovnkube/test/scale/load"
	"github.com/ovnkube/ovnkube/test/scale/plane"
	"github.com/ovnkube/ovnkube/test/scale/result"
)

// prepare creates nodes, namespaces and pods; a master assigns their subnets and
// addresses.
func (b *bench) prepare(ctx context.Context) error {
	var err error
	if b.clients, err = load.NewClients(b.plane.REST()); err != nil {
		return err
	}
	if err := b.clients.InstallCRDs(ctx, b.crds); err != nil {
		return err
	}
	if err := b.clients.MakeBase(ctx, b.size); err != nil {
		return err
	}
	b.say("nodes and pods are there")
	if b.agents, err = agents.Start(ctx, b.clients); err != nil {
		return err
	}
	return b.agents.Confirm(ctx, b.plane, b.size.Nodes)
}

// starts measures starts of a master: in a cluster whose pods have no addresses yet; in one
// whose northbound database is empty, with egress objects that have not been served yet; when
// there is nothing to do; and after its rows lost their ownership marks.
func (b *bench) starts(ctx context.Context) error {
	if err := b.start(ctx, "first start, pods only", nil); err != nil {
		return err
	}
	b.master.Stop()
	if err := b.plane.ResetDatabases(ctx); err != nil {
		return err
	}
	if err := b.agents.Confirm(ctx, b.plane, b.size.Nodes); err != nil {
		return err
	}
	if err := b.clients.MakeFeatures(ctx, b.size, b.agents.PodsOf); err != nil {
		return err
	}
	b.say("Services and egress objects are there, the northbound database is empty")
	err := b.start(ctx, "cold start", func(m mark, r *result.Result) { r.Kinds = b.kinds(m) })
	if err != nil {
		return err
	}
	if err := b.measureIdle(ctx); err != nil {
		return err
	}
	b.master.Stop()
	if err := b.start(ctx, "restart, nothing changed", nil); err != nil {
		return err
	}
	return b.takeOver(ctx)
}

// takeOver measures the start of a master in a database whose rows had no ownership marks, like those of another
// implementation, as far as that has the same rows.
func (b *bench) takeOver(ctx context.Context) error {
	b.master.Stop()
	n, err := b.plane.Disown(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	text, err := b.plane.Adopt(ctx)
	if err != nil {
		return err
	}
	b.say("%d rows are taken over, in %v", n, time.Since(began).Round(time.Millisecond))
	for _, want := range []string{fmt.Sprintf("Rows that are understood: %d\n", n), "and stay as they are: 0\n", fmt.Sprintf("from now on: %d\n", n)} {
		if !strings.Contains(text, want) {
			return fmt.Errorf("ovnkube adopt does not say %q:\n%s", want, text)
		}
	}
	return b.start(ctx, "taken over", nil)
}

// start measures the start of a master, until everything is served and it has nothing left to do.
func (b *bench) start(ctx context.Context, phase string, more func(m mark, r *result.Result)) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	b.master, b.idle = nil, 0
	m, err := b.mark()
	if err != nil {
		return err
	}
	if b.master, err = b.plane.StartMaster(load.NodeName(0), 0); err != nil {
		return err
	}
	end := b.profile(ctx, b.master.Served, phase)
	served, err := b.awaitServed(ctx)
	if err != nil {
		return err
	}
	done, err := b.awaitIdle(ctx, b.master.Process, b.controllers, m.at)
	if err != nil {
		return err
	}
	tried, err := b.master.Tried()
	if err != nil {
		return err
	}
	b.controllers = max(b.controllers, tried)
	if served.After(done) {
		done = served
	}
	if err := errors.Join(b.settle(ctx, m, done, long), end()); err != nil {
		return err
	}
	var raw func(*result.Result)
	if more != nil {
		took, rows, err := b.plane.Raw(ctx)
		if err != nil {
			return err
		}
		raw = func(r *result.Result) {
			more(m, r)
			r.Raw, r.RawRows = milliseconds(time.Time{}, time.Time{}.Add(took)), rows
		}
	}
	return b.record(phase, m, done, raw)
}

// told is the interval at which the objects that are not served yet are printed.
const told = 10 * time.Second

// awaitServed waits until all objects are served as specified, and returns the time.
func (b *bench) awaitServed(ctx context.Context) (time.Time, error) {
	next := time.Now().Add(told)
	look := time.Time{}
	err := plane.Until(ctx, "everything to be served", func() error {
		if err := b.plane.Failed(); err != nil {
			return err
		}
		// For a large size, checking all objects takes a while.
		if time.Since(look) < 50*time.Millisecond {
			return errors.New("looking")
		}
		unfinished := b.agents.Unfinished()
		look = time.Now()
		if len(unfinished) == 0 {
			return nil
		}
		if look.After(next) {
			b.say("not served yet: %v", unfinished)
			next = look.Add(told)
		}
		return fmt.Errorf("not served: %v", unfinished)
	})
	return look, err
}

const (
	// sample is the interval at which a program's CPU usage is checked; the program is busy if it uses more
	// than the share busy of one CPU.
	sample = 100 * time.Millisecond
	busy   = 0.3
)

// awaitIdle waits until so many controllers of a program have started, and it has nothing left to do; it returns since when. A
// program that waits for the API server or a database uses no CPU time either.
func (b *bench) awaitIdle(ctx context.Context, program *plane.Process, controllers int, since time.Time) (time.Time, error) {
	ticker := time.NewTicker(sample)
	defer ticker.Stop()
	last, at, worked := program.CPU(), time.Now(), since
	for {
		select {
		case <-ctx.Done():
			return worked, fmt.Errorf("wait for %s to be idle: %w", program.Name, ctx.Err())
		case <-ticker.C:
		}
		if err := b.plane.Failed(); err != nil {
			return worked, err
		}
		now, used := time.Now(), program.CPU()
		if (used - last).Seconds() > busy*now.Sub(at).Seconds() {
			worked = now
		}
		last, at = used, now
		tried, err := program.Tried()
		if err != nil {
			return worked, err
		}
		if tried < controllers {
			worked = now
		}
		if now.Sub(worked) > long {
			return worked, nil
		}
	}
}

// measureIdle measures what the master uses when idle.
func (b *bench) measureIdle(ctx context.Context) error {
	const span = 3 * time.Second
	began := b.master.CPU()
	select {
	case <-time.After(span):
	case <-ctx.Done():
		return ctx.Err()
	}
	b.idle = (b.master.CPU() - began).Seconds() / span.Seconds()
	b.say("idle: %.3f of a processor", b.idle)
	return nil
}

// profile writes CPU profiles of a program, each of some seconds, until the function that it
// returns is called, which also writes a memory profile.
func (b *bench) profile(ctx context.Context, program *plane.Served, phase string) func() error {
	if b.profiles == "" {
		return func() error { return nil }
	}
	stop := make(chan struct{})
	var all errgroup.Group
	all.Go(func() error {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return program.Profile(ctx, b.profiles, phase+" heap.pprof", "heap?gc=1")
			default:
			}
			// The program does not listen immediately after its start.
			_ = plane.Until(ctx, "it to listen", func() error {
				return program.Profile(ctx, b.profiles, fmt.Sprintf("%s cpu-%03d.pprof", phase, i), "profile?seconds=5")
			})
		}
	})
	return func() error {
		close(stop)
		return all.Wait()
	}
}
