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
	passes   *host.Coalescer[outcome]
	programs map[topology.Family]*programs // those found so far; only used by write, which never runs concurrently

	mu      sync.Mutex // guards the fields below, never held over I/O
	want    map[string]host.Rules
	dropped map[host.ChainKey]map[host.Rule]bool // deleted even before Sweep
	swept   bool
	dirty   bool                                      // somebody else may have changed a table
	changes map[topology.Family]uint64                // how often the desired rules have changed
	settled map[topology.Family]uint64                // the last value of changes that was written; none if the state of the tables is unknown
	written map[topology.Family]map[string]host.Rules // the contributions that are in the tables
	refused map[topology.Family]map[string]bool       // contributors whose rules were refused, until they are tried again

	repaired atomic.Uint64
}

var _ host.ChainWriter = (*Writer)(nil)

// New returns a Writer of the declared chains. Nothing is written before the
// first Apply, Resync or Sweep.
func New(chains []host.Chain) (*Writer, error) {
	w := &Writer{
		declared: map[place][]host.Chain{},
		passes:   host.NewCoalescer[outcome](),
		programs: map[topology.Family]*programs{},
		want:     map[string]host.Rules{},
		dropped:  map[host.ChainKey]map[host.Rule]bool{},
		changes:  map[topology.Family]uint64{},
		settled:  map[topology.Family]uint64{},
		written:  map[topology.Family]map[string]host.Rules{},
		refused:  map[topology.Family]map[string]bool{},
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

// Apply implements host.ChainWriter. If the kernel refuses rules of this contributor, those that it had
// before stay, and the error is only its own.
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
	o, err := w.pass(ctx)
	return errors.Join(err, o.err, o.refused[contributor])
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
		if w.refused[f][contributor] || differ(f, w.want[contributor], next) {
			delete(w.refused[f], contributor)
			w.changes[f]++
		}
	}
	if w.want[contributor] = next; len(next) == 0 {
		delete(w.want, contributor)
	}
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

// Resync reads the tables again and repairs what differs. Rules that were refused are tried again.
func (w *Writer) Resync(ctx context.Context) error {
	w.mu.Lock()
	w.dirty = true
	clear(w.refused)
	w.mu.Unlock()
	o, err := w.pass(ctx)
	return errors.Join(err, o.all())
}

// pass makes sure that everything requested so far is written.
func (w *Writer) pass(ctx context.Context) (outcome, error) {
	return w.passes.Do(ctx, w.passes.Request(), w.write)
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
	family   topology.Family
	declared map[string][]host.Chain // by table
	swept    bool
	dropped  map[host.ChainKey]map[host.Rule]bool
	want     map[string]host.Rules // by contributor
	written  map[string]host.Rules // what the last pass wrote
	changes  uint64                // value of Writer.changes for want
	known    bool                  // the last pass left the tables as they are still wanted
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
		r, ok := out[p.family]
		if !ok {
			r = round{
				family: p.family, declared: map[string][]host.Chain{}, swept: w.swept, dropped: map[host.ChainKey]map[host.Rule]bool{},
				want: w.wanted(p.family), written: w.written[p.family], changes: w.changes[p.family], known: !w.unsettled(p.family),
			}
			out[p.family] = r
		}
		r.declared[p.table] = w.declared[p]
		for _, c := range w.declared[p] {
			r.dropped[c.ChainKey] = maps.Clone(w.dropped[c.ChainKey])
		}
	}
	for f := range out {
		delete(w.settled, f)
	}
	w.dirty = false
	return out
}

// wanted returns the contributions for a family, and for contributors whose rules were refused what
// is written of theirs; w.mu is held.
func (w *Writer) wanted(f topology.Family) map[string]host.Rules {
	out := maps.Clone(w.want)
	for name := range w.refused[f] {
		if out[name] = w.written[f][name]; out[name] == nil {
			delete(out, name)
		}
	}
	return out
}

// goals returns the desired content of the tables, by name, with some contributions.
func (r round) goals(contributions map[string]host.Rules) map[string]goal {
	names := slices.Sorted(maps.Keys(contributions))
	out := map[string]goal{}
	for table, declared := range r.declared {
		g := goal{declared: declared, swept: r.swept, rules: map[string][]host.Rule{}, dropped: map[string]map[host.Rule]bool{}}
		for _, c := range declared {
			g.rules[c.Name] = union(c.ChainKey, names, contributions)
			g.dropped[c.Name] = r.dropped[c.ChainKey]
		}
		out[table] = g
	}
	return out
}

// union returns the rules of one chain in the order of the contributors' names, without duplicates.
func union(key host.ChainKey, names []string, contributions map[string]host.Rules) []host.Rule {
	var out []host.Rule
	seen := map[host.Rule]bool{}
	for _, name := range names {
		for _, r := range contributions[name][key] {
			if !seen[r] {
				seen[r] = true
				out = append(out, r)
			}
		}
	}
	return out
}

// write does one pass.
func (w *Writer) write(ctx context.Context) outcome {
	rounds := w.rounds()
	out := outcome{refused: map[string]error{}}
	repaired := false
	for _, f := range slices.Sorted(maps.Keys(rounds)) {
		written, refused, err := w.reconcile(ctx, f, rounds[f])
		if err != nil {
			out.err = errors.Join(out.err, err)
			continue
		}
		for name, err := range refused {
			out.refused[name] = errors.Join(out.refused[name], err)
		}
		repaired = repaired || written && rounds[f].known && rounds[f].changes > 0
	}
	if repaired {
		w.repaired.Add(1)
	}
	return out
}

// reconcile writes what has to be written for one family, and reports whether it wrote anything, and
// whose rules were refused.
func (w *Writer) reconcile(ctx context.Context, f topology.Family, r round) (written bool, refused map[string]error, err error) {
	if w.programs[f] == nil {
		if w.programs[f], err = find(f); err != nil {
			return false, nil, err
		}
	}
	before := w.programs[f].writes
	contributions, refused, err := w.programs[f].apply(ctx, r)
	if err != nil {
		return false, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled[f], w.written[f] = r.changes, contributions
	for name := range refused {
		if w.refused[f] == nil {
			w.refused[f] = map[string]bool{}
		}
		w.refused[f][name] = true
	}
	return w.programs[f].writes != before, refused, nil
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
