package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// counting counts the calls that replace all flows.
type counting struct {
	fakeWriter
	replaced int
}

func (w *counting) Apply(ctx context.Context, owner string, flows []host.Flow) error {
	w.replaced++
	return w.fakeWriter.Apply(ctx, owner, flows)
}

func forService(i int, action string) host.Flow {
	return host.Flow(fmt.Sprintf("table=0,priority=110,in_port=PHYS,tcp,nw_dst=5.5.%d.%d,tp_dst=80,actions=%s", i/250, i%250, action))
}

// withServices returns a manager with the flows of n Services, and its counting driver.
func withServices(t *testing.T, n int) (*fixture, *counting, []host.Flow) {
	t.Helper()
	ctx, f := t.Context(), newFixture(t)
	w := &counting{fakeWriter: fakeWriter{f.flows}}
	f.m = New([]string{base}, f.db, func(string) Writer { return w })
	f.port("eth0", 1)
	f.port("patch", 2)
	f.must(f.m.Attach(ctx, at))
	f.must(f.m.Apply(ctx, base, baseFlows))
	var all []host.Flow
	for i := range n {
		all = append(all, forService(i, "output:PATCH"))
	}
	f.must(f.m.Apply(ctx, "services", all))
	return f, w, all
}

// TestCostOfOne: if an owner of many flows changes one of them, the driver is given only that one, with the
// same result as if it were given all.
func TestCostOfOne(t *testing.T) {
	ctx := t.Context()
	f, w, all := withServices(t, 1000)
	for name, c := range map[string]struct {
		changed  int
		replaced int
		change   func()
	}{
		"one added":          {1, 0, func() { all = append(all, forService(5000, "output:PATCH")) }},
		"one removed":        {1, 0, func() { all = slices.Delete(all, 500, 501) }},
		"one with an action": {2, 0, func() { all[3] = forService(3, "drop") }},
		"in another order":   {0, 0, func() { slices.Reverse(all) }},
		"most":               {0, 1, func() { all = all[:100] }},
		"nothing":            {0, 0, func() {}},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(all)
			changed, replaced := f.flows.Changed(), w.replaced
			c.change()
			f.must(f.m.Apply(ctx, "services", slices.Clone(all)))
			if got := f.flows.Changed() - changed; got != c.changed {
				t.Errorf("%d flows changed, want %d", got, c.changed)
			}
			if got := w.replaced - replaced; got != c.replaced {
				t.Errorf("all flows given %d times, want %d", got, c.replaced)
			}
			fresh := newFixture(t)
			fresh.port("eth0", 1)
			fresh.port("patch", 2)
			fresh.must(fresh.m.Attach(ctx, at))
			fresh.must(fresh.m.Apply(ctx, base, baseFlows))
			fresh.must(fresh.m.Apply(ctx, "services", all))
			if got, want := lines(f.flows.Dump()), lines(fresh.flows.Dump()); !slices.Equal(got, want) {
				t.Errorf("%d flows, and %d if they are given anew", len(got), len(want))
			}
			all = before
			f.must(f.m.Apply(ctx, "services", all))
		})
	}
}

// TestSameMatch: where the order of flows decides which of them counts, the driver is given all.
func TestSameMatch(t *testing.T) {
	ctx := t.Context()
	f, w, all := withServices(t, 10)
	before := w.replaced
	f.must(f.m.Apply(ctx, base, append(slices.Clone(baseFlows), forService(3, "drop")))) // it precedes the other owner's
	f.must(f.m.Apply(ctx, "services", append(slices.Clone(all), forService(4, "drop"))))
	reordered := append(slices.Clone(all), forService(4, "drop"))
	slices.Reverse(reordered)
	f.must(f.m.Apply(ctx, "services", reordered))
	f.must(f.m.Apply(ctx, "services", all))
	f.must(f.m.Apply(ctx, base, baseFlows))
	if got := w.replaced - before; got != 5 {
		t.Errorf("all flows given %d times, want 5", got)
	}
	if f.must(f.m.Apply(ctx, "services", reordered[1:])); w.replaced-before != 5 {
		t.Error("all flows given because of matches that were shared earlier")
	}
}

func lines(dump string) []string { return sorted(slices.Collect(strings.Lines(dump))) }
