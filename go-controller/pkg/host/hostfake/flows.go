package hostfake

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// Flows is a host.FlowWriter in memory.
type Flows struct {
	// Fail, if set, makes Apply of a contributor fail without effect.
	Fail func(contributor string) error

	mu      sync.Mutex
	want    map[string][]host.Flow
	swept   bool
	resync  int
	writes  int
	changed int
}

var _ host.FlowWriter = (*Flows)(nil)

// NewFlows returns an empty writer.
func NewFlows() *Flows { return &Flows{want: map[string][]host.Flow{}} }

// Apply implements host.FlowWriter.
func (f *Flows) Apply(_ context.Context, contributor string, flows []host.Flow) error {
	if f.Fail != nil {
		if err := f.Fail(contributor); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.dump()
	f.want[contributor] = slices.Clone(flows)
	if f.dump() != before {
		f.writes++
	}
	return nil
}

// Change implements host.FlowWriter.
func (f *Flows) Change(ctx context.Context, contributor string, remove, add []host.Flow) error {
	f.mu.Lock()
	flows := slices.DeleteFunc(slices.Clone(f.want[contributor]), func(o host.Flow) bool { return slices.Contains(remove, o) })
	f.changed += len(remove) + len(add)
	f.mu.Unlock()
	return f.Apply(ctx, contributor, append(flows, add...))
}

// Changed returns how many flows Change was called with.
func (f *Flows) Changed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// Sweep implements host.FlowWriter.
func (f *Flows) Sweep(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.swept = true
	return nil
}

// Resync only counts its calls.
func (f *Flows) Resync(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resync++
	return nil
}

// Swept reports whether Sweep was called.
func (f *Flows) Swept() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.swept
}

// Resyncs returns how often Resync was called.
func (f *Flows) Resyncs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.resync
}

// Writes returns how many calls changed the flows.
func (f *Flows) Writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// Dump prints the flows one per line, by contributor.
func (f *Flows) Dump() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dump()
}

func (f *Flows) dump() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f.want)) {
		for _, flow := range f.want[name] {
			out.WriteString(string(flow))
			out.WriteByte('\n')
		}
	}
	return out.String()
}
