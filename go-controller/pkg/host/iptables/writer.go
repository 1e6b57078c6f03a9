package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// place is one table of one family.
type place struct {
	family topology.Family
	table  string
}

// Writer is the host.ChainWriter of the kernel. A node has one: it owns every chain whose name
// begins with host.ChainPrefix.
type Writer struct {
	places   []place
	declared map[place][]host.Chain
	passes   *host.Coalescer[error]
	programs map[topology.Family]*programs // those found so far; only used by write, which never runs concurrently

	mu      sync.Mutex // guards the fields below, never held over I/O
	want    map[string]host.Rules
	dropped map[host.ChainKey]map[host.Rule]bool // deleted even before Sweep
	swept   bool
	dirty   bool                       // somebody else may have changed a table
	changes map[topology.Family]uint64 // how often the desired rules have changed
	settled map[topology.Family]uint64 // the last value of changes that was written; none if the state of the tables is unknown

	repaired atomic.Uint64
}

var _ host.ChainWriter = (*Writer)(nil)

// New returns a Writer of the declared chains. Nothing is written before the
// first Apply, Resync or Sweep.
func New(chains []host.Chain) (*Writer, error) {
	w := &Writer{
		declared: map[place][]host.Chain{},
		passes:   host.NewCoalescer[error](),
		programs: map[topology.Family]*programs{},
		want:     map[string]host.Rules{},
		dropped:  map[host.ChainKey]map[host.Rule]bool{},
		changes:  map[topology.Family]uint64{},
		settled:  map[topology.Family]uint64{},
	}
	seen := map[host.ChainKey]bool{}
	for _, c := range chains {
		if !strings.HasPrefix(c.Name, host.ChainPrefix) {
			return nil, fmt.Errorf("declare chain %s: its name does not begin with %s", c.Name, host.ChainPrefix)
		}
		if seen[c.ChainKey] {
			return nil, fmt.Errorf("declare chain %s: twice in table %s of %s", c.Name, c.Table, c.Family)
		}
		seen[c.ChainKey] = true
		for _, j := range c.Jumps {
			if strings.HasPrefix(j.From, host.ChainPrefix) {
				return nil, fmt.Errorf("declare chain %s: jump from %s, which is not a built-in chain", c.Name, j.From)
			}
		}
		p := place{c.Family, c.Table}
		w.declared[p] = append(w.declared[p], c)
	}
	for p, list := range w.declared {
		slices.SortStableFunc(list, func(a, b host.Chain) int {
			return cmp.Or(cmp.Compare(a.Position, b.Position), strings.Compare(a.Name, b.Name))
		})
		w.places = append(w.places, p)
	}
	slices.SortFunc(w.places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.family, b.family), strings.Compare(a.table, b.table))
	})
	return w, nil
}

// Apply implements host.ChainWriter.
func (w *Writer) Apply(ctx context.Context, contributor string, want host.Rules) error {
	for key, rules := range want {
		for _, r := range rules {
			if strings.ContainsAny(string(r), "\r\n") || !strings.Contains(string(r), "-j ") {
				return fmt.Errorf("apply rules of %s: %q is not a rule", contributor, r)
			}
		}
		if !slices.ContainsFunc(w.declared[place{key.Family, key.Table}], func(c host.Chain) bool { return c.Name == key.Name }) {
			return fmt.Errorf("apply rules of %s: chain %s is not declared in table %s of %s",
				contributor, key.Name, key.Table, key.Family)
		}
	}
	w.contribute(contributor, want)
	if w.upToDate() {
		return nil
	}
	return w.pass(ctx)
}

// contribute records a contribution.
func (w *Writer) contribute(contributor string, want host.Rules) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.swept {
		for key, rules := range w.want[contributor] {
			for _, r := range rules {
				if w.dropped[key] == nil {
					w.dropped[key] = map[host.Rule]bool{}
				}
				// If it is still wanted, the union keeps it.
				w.dropped[key][r] = true
			}
		}
	}
	next := host.Rules{}
	for key, rules := range want {
		next[key] = slices.Clone(rules)
	}
	for _, f := range topology.Families {
		if differ(f, w.want[contributor], next) {
			w.changes[f]++
		}
	}
	w.want[contributor] = next
}

// differ reports whether two contributions differ in the chains of a family.
func differ(f topology.Family, a, b host.Rules) bool {
	for _, rules := range []host.Rules{a, b} {
		for key := range rules {
			if key.Family == f && !slices.Equal(a[key], b[key]) {
				return true
			}
		}
	}
	return false
}

// upToDate reports whether the last passes left all tables as they are wanted now, and no check of
// the tables has been requested since.
func (w *Writer) upToDate() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.dirty && !slices.ContainsFunc(w.places, func(p place) bool { return w.unsettled(p.family) })
}

// unsettled reports whether a family has something to write or its state is unknown; w.mu is held.
func (w *Writer) unsettled(f topology.Family) bool {
	settled, known := w.settled[f]
	return !known || settled != w.changes[f]
}

// Sweep implements host.ChainWriter.
func (w *Writer) Sweep(ctx context.Context) error {
	w.mu.Lock()
	if !w.swept {
		for _, f := range topology.Families {
			w.changes[f]++
		}
	}
	w.swept, w.dropped = true, nil
	w.mu.Unlock()
	return w.Resync(ctx)
}

// Resync reads the tables again and repairs what differs.
func (w *Writer) Resync(ctx context.Context) error {
	w.mu.Lock()
	w.dirty = true
	w.mu.Unlock()
	return w.pass(ctx)
}

// pass makes sure that everything requested so far is written.
func (w *Writer) pass(ctx context.Context) error {
	result, err := w.passes.Do(ctx, w.passes.Request(), w.write)
	return errors.Join(err, result)
}

// Run calls Resync every interval until ctx ends, since other programs flush tables and edit
// chains.
func (w *Writer) Run(ctx context.Context, interval time.Duration) {
	host.Keep(ctx, interval, nil, w.Resync, func(err error) {
		klog.ErrorS(err, "Cannot repair iptables, will retry", "after", interval)
	})
}

// Repaired returns how many passes found and repaired chains that others had changed.
func (w *Writer) Repaired() uint64 { return w.repaired.Load() }

// round is the work of one pass for a family.
type round struct {
	tables  map[string]goal
	changes uint64 // value of Writer.changes for these goals
	known   bool   // the last pass left the tables as they are still wanted
}

// rounds returns the work of a pass: for the families that have something to write, or for all
// families if a check was requested.
func (w *Writer) rounds() map[topology.Family]round {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[topology.Family]round{}
	for _, p := range w.places {
		if !w.dirty && !w.unsettled(p.family) {
			continue
		}
		g := goal{
			declared: w.declared[p], swept: w.swept,
			rules: map[string][]host.Rule{}, dropped: map[string]map[host.Rule]bool{},
		}
		for _, c := range g.declared {
			g.rules[c.Name] = w.union(c.ChainKey)
			g.dropped[c.Name] = maps.Clone(w.dropped[c.ChainKey])
		}
		r, ok := out[p.family]
		if !ok {
			r = round{tables: map[string]goal{}, changes: w.changes[p.family], known: !w.unsettled(p.family)}
			out[p.family] = r
		}
		r.tables[p.table] = g
	}
	for f := range out {
		delete(w.settled, f)
	}
	w.dirty = false
	return out
}

// union returns the rules of one chain in the order of the contributors' names, without duplicates;
// w.mu is held.
func (w *Writer) union(key host.ChainKey) []host.Rule {
	var out []host.Rule
	seen := map[host.Rule]bool{}
	for _, name := range slices.Sorted(maps.Keys(w.want)) {
		for _, r := range w.want[name][key] {
			if !seen[r] {
				seen[r] = true
				out = append(out, r)
			}
		}
	}
	return out
}

// write does one pass.
func (w *Writer) write(ctx context.Context) error {
	rounds := w.rounds()
	var errs []error
	repaired := false
	for _, f := range slices.Sorted(maps.Keys(rounds)) {
		written, err := w.reconcile(ctx, f, rounds[f])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		repaired = repaired || written && rounds[f].known && rounds[f].changes > 0
	}
	if repaired {
		w.repaired.Add(1)
	}
	return errors.Join(errs...)
}

// reconcile writes what has to be written for one family, and reports whether it wrote anything.
func (w *Writer) reconcile(ctx context.Context, f topology.Family, r round) (written bool, err error) {
	if w.programs[f] == nil {
		if w.programs[f], err = find(f); err != nil {
			return false, err
		}
	}
	before := w.programs[f].writes
	if err := w.programs[f].reconcile(ctx, r.tables); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled[f] = r.changes
	return w.programs[f].writes != before, nil
}

// reconcile brings tables to their goals, all of them together, which takes one program run to read
// and one to write. Another program may change a table in between, or the kernel may refuse one:
// then each table is tried on its own.
func (p *programs) reconcile(ctx context.Context, goals map[string]goal) error {
	err := p.pass(ctx, "", goals)
	if err == nil || ctx.Err() != nil {
		return err
	}
	klog.V(4).InfoS("Writing tables one by one", "family", p.family, "err", err)
	var errs []error
	for _, t := range slices.Sorted(maps.Keys(goals)) {
		if err := p.pass(ctx, t, map[string]goal{t: goals[t]}); err != nil {
			errs = append(errs, fmt.Errorf("write table %s of %s: %w", t, p.family, err))
		}
	}
	return errors.Join(errs...)
}

// pass reads a table, or all tables if it is "", and writes the difference to the goals.
func (p *programs) pass(ctx context.Context, table string, goals map[string]goal) error {
	text, err := p.read(ctx, table)
	if err != nil {
		return err
	}
	have, err := parse(text, slices.Collect(maps.Keys(goals))...)
	if err != nil {
		return err
	}
	var input strings.Builder
	for _, t := range slices.Sorted(maps.Keys(goals)) {
		input.WriteString(plan(t, have[t], goals[t]))
	}
	if input.Len() == 0 {
		klog.V(4).InfoS("iptables tables are up to date", "family", p.family, "tables", len(goals))
		return nil
	}
	if err := p.write(ctx, input.String()); err != nil {
		return err
	}
	p.writes++
	klog.V(2).InfoS("Wrote iptables tables", "family", p.family, "lines", strings.Count(input.String(), "\n"))
	klog.V(5).InfoS("Restored", "input", input.String())
	return nil
}
