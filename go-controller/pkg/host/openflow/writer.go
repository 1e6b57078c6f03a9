package openflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/unixctl"
)

// Cookie marks all our flows: "ovnk" in ASCII.
const Cookie = 0x6f766e6b

// DefaultRunDir is where ovs-vswitchd keeps the management sockets of its bridges.
const DefaultRunDir = "/var/run/openvswitch"

// Writer is the host.FlowWriter of one bridge.
type Writer struct {
	bridge   string
	target   string // what ovs-ofctl connects to
	vswitchd unixctl.Daemon
	passes   *host.Coalescer[error]

	// own are our changes that the flow monitor has not reported yet.
	own expected

	mu      sync.Mutex // guards the fields below, never held over I/O
	want    map[string]*contribution
	dropped map[string]uint64 // matches to delete before Sweep, with the count of drops
	drops   uint64
	swept   bool
	// changed are, by match, the flows that were changed one by one since the bridge last had all
	// desired flows; "" for a flow to be deleted. anew means that all flows have to be compared.
	changed map[string]host.Flow
	anew    bool
	again   bool // one flow is to be written once more
}

var _ host.FlowWriter = (*Writer)(nil)

// New returns a Writer of the flows of bridge. runDir is ovs-vswitchd's run directory,
// DefaultRunDir on a node.
func New(bridge, runDir string) *Writer {
	return &Writer{
		bridge: bridge, target: "unix:" + filepath.Join(runDir, bridge+".mgmt"),
		vswitchd: unixctl.Daemon{RunDir: runDir, Name: "ovs-vswitchd"},
		passes:   host.NewCoalescer[error](), want: map[string]*contribution{}, dropped: map[string]uint64{}, changed: map[string]host.Flow{}, anew: true,
	}
}

// Apply implements host.FlowWriter. It fails while ovs-vswitchd does not run;
// the contribution is remembered, and Run writes it later.
func (w *Writer) Apply(ctx context.Context, contributor string, flows []host.Flow) error {
	for _, f := range flows {
		if err := check(f); err != nil {
			return fmt.Errorf("apply flows of %s to bridge %s: %w", contributor, w.bridge, err)
		}
	}
	w.mu.Lock()
	w.drops++
	if !w.swept {
		for _, f := range w.want[contributor].flows() {
			w.dropped[f.Match()] = w.drops
		}
	}
	w.want[contributor] = newContribution(flows)
	w.mu.Unlock()
	return w.Resync(ctx)
}

// Change implements host.FlowWriter. Once the bridge has all desired flows, it writes these flows
// without comparing any others.
func (w *Writer) Change(ctx context.Context, contributor string, remove, add []host.Flow) error {
	for _, f := range add {
		if err := check(f); err != nil {
			return fmt.Errorf("change flows of %s on bridge %s: %w", contributor, w.bridge, err)
		}
	}
	w.mu.Lock()
	if w.want[contributor] == nil {
		w.want[contributor] = newContribution(nil)
	}
	changed := w.want[contributor].change(remove, add)
	w.drops++
	for m, f := range changed {
		if f == "" && !w.swept {
			w.dropped[m] = w.drops
		}
		w.anew = w.anew || w.shared(contributor, m)
		w.changed[m] = f
	}
	w.anew = w.anew || !w.swept
	w.mu.Unlock()
	return w.turn(ctx)
}

// shared reports whether another contributor also wants a flow with this match; w.mu is held.
func (w *Writer) shared(contributor, match string) bool {
	for name, c := range w.want {
		if name != contributor && c.has(match) {
			return true
		}
	}
	return false
}

// Sweep implements host.FlowWriter.
func (w *Writer) Sweep(ctx context.Context) error {
	w.mu.Lock()
	w.swept = true
	w.mu.Unlock()
	return w.Resync(ctx)
}

// Resync compares the bridge with the desired flows and repairs it.
func (w *Writer) Resync(ctx context.Context) error {
	w.mu.Lock()
	w.anew = true
	w.mu.Unlock()
	return w.turn(ctx)
}

// turn makes sure that everything requested so far is written.
func (w *Writer) turn(ctx context.Context) error {
	result, err := w.passes.Do(ctx, w.passes.Request(), w.write)
	if err = errors.Join(err, result); err != nil {
		return fmt.Errorf("write flows of bridge %s: %w", w.bridge, err)
	}
	return nil
}

// Dump returns the flows of the bridge as ovs-ofctl prints them, for people.
func (w *Writer) Dump(ctx context.Context) (string, error) {
	return w.ofctl(ctx, "", "--no-stats", "dump-flows", w.target)
}

// Blank reports whether the bridge has none of our flows.
func (w *Writer) Blank(ctx context.Context) (bool, error) {
	text, err := w.Dump(ctx)
	return !strings.Contains(text, fmt.Sprintf("cookie=%#x,", Cookie)), err
}

// Packets returns how many packets our flows of each table and priority have matched since they were
// added.
func (w *Writer) Packets(ctx context.Context) (map[host.FlowLevel]uint64, error) {
	text, err := w.ofctl(ctx, "", "dump-flows", w.target, fmt.Sprintf("cookie=%#x/-1", Cookie))
	if err != nil {
		return nil, err
	}
	totals := map[host.FlowLevel]uint64{}
	for line := range strings.Lines(text) {
		level, packets := host.FlowLevel{}, uint64(0)
		stats, _, ours := strings.Cut(line, "actions=") // not the header
		for _, field := range strings.FieldsFunc(stats, func(r rune) bool { return r == ',' || r == ' ' }) {
			var err error
			switch name, value, _ := strings.Cut(field, "="); name {
			case "table":
				level.Table, err = strconv.Atoi(value)
			case "priority":
				level.Priority, err = strconv.Atoi(value)
			case "n_packets":
				packets, err = strconv.ParseUint(value, 10, 64)
			}
			if err != nil {
				return nil, fmt.Errorf("count packets of bridge %s: %w", w.bridge, err)
			}
		}
		if ours {
			totals[level] += packets
		}
	}
	return totals, nil
}

// check rejects flows that would break the whole bundle or escape it.
func check(f host.Flow) error {
	switch {
	case strings.ContainsAny(string(f), "\r\n#"):
		return fmt.Errorf("flow %q: more than one line", f)
	case !strings.Contains(string(f), "actions="):
		return fmt.Errorf("flow %q: no actions", f)
	case strings.Contains(f.Match(), "cookie="):
		return fmt.Errorf("flow %q: the cookie is not the contributor's", f)
	}
	return nil
}

// union returns all flows in the order of the contributors' names. Of flows that are written with
// the same match the first one wins.
func (w *Writer) union() []host.Flow {
	var out []host.Flow
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(w.want)) {
		for _, f := range w.want[name].flows() {
			if m := f.Match(); !seen[m] {
				seen[m] = true
				out = append(out, f)
			}
		}
	}
	return out
}

// write does one pass. It is never called concurrently.
func (w *Writer) write(ctx context.Context) error {
	if err := w.writeWanted(ctx); err != nil {
		return err
	}
	return w.writeAgain(ctx)
}

// writeWanted writes what differs from the desired flows.
func (w *Writer) writeWanted(ctx context.Context) error {
	w.mu.Lock()
	changed := w.changed
	w.changed = map[string]host.Flow{}
	if !w.anew {
		w.mu.Unlock()
		return w.unlessFailed(w.writeChanged(ctx, changed))
	}
	w.anew = false
	flows, dropped, drops, swept := w.union(), maps.Clone(w.dropped), w.drops, w.swept
	w.mu.Unlock()

	var err error
	if swept {
		err = w.replace(ctx, flows)
	} else {
		err = w.add(ctx, flows, dropped)
	}
	if w.unlessFailed(err) != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for m := range dropped {
		if w.dropped[m] <= drops {
			delete(w.dropped, m)
		}
	}
	return nil
}

// unlessFailed makes the next pass compare all flows if this one failed.
func (w *Writer) unlessFailed(err error) error {
	if err != nil {
		w.mu.Lock()
		w.anew = true
		w.mu.Unlock()
	}
	return err
}

// writeChanged writes flows that were changed one by one.
func (w *Writer) writeChanged(ctx context.Context, changed map[string]host.Flow) error {
	if len(changed) == 0 {
		return nil
	}
	var input strings.Builder
	for _, m := range slices.Sorted(maps.Keys(changed)) {
		if f := changed[m]; f != "" {
			fmt.Fprintf(&input, "add %s\n", line(f))
		} else {
			fmt.Fprintf(&input, "delete_strict %s\n", m)
		}
	}
	w.own.expect(len(changed))
	if _, err := w.ofctl(ctx, input.String(), "--bundle", "add-flows", w.target, "-"); err != nil {
		w.own.expect(0)
		return err
	}
	klog.V(2).InfoS("Changed flows of a bridge", "bridge", w.bridge, "flows", len(changed))
	return nil
}

// replace makes flows the only ones of the bridge.
func (w *Writer) replace(ctx context.Context, flows []host.Flow) error {
	learned, err := w.learned(ctx)
	if err != nil {
		return err
	}
	input := render(flows) + learned
	_, differs, err := w.diff(ctx, input)
	if err != nil {
		return err
	}
	if !differs {
		klog.V(4).InfoS("Flows of the bridge are up to date", "bridge", w.bridge, "flows", len(flows))
		return nil
	}
	if _, err := w.ofctl(ctx, input, "--bundle", "replace-flows", w.target, "-"); err != nil {
		return err
	}
	klog.V(2).InfoS("Replaced the flows of a bridge", "bridge", w.bridge, "flows", len(flows))
	return nil
}

// learned returns the learned flows of the bridge, as input for replace-flows: they stay as they
// are.
func (w *Writer) learned(ctx context.Context) (string, error) {
	text, err := w.ofctl(ctx, "", "--no-stats", "dump-flows", w.target, fmt.Sprintf("cookie=%#x/-1", host.LearnedCookie))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, "actions=") { // not the header
			out.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	return out.String(), nil
}

// add adds flows, updates those that differ and deletes those that were dropped.
func (w *Writer) add(ctx context.Context, flows []host.Flow, dropped map[string]uint64) error {
	wanted := map[string]bool{}
	for _, f := range flows {
		wanted[f.Match()] = true
	}
	var input strings.Builder
	for _, m := range slices.Sorted(maps.Keys(dropped)) {
		if !wanted[m] {
			fmt.Fprintf(&input, "delete_strict %s\n", m)
		}
	}
	for _, f := range flows {
		fmt.Fprintf(&input, "add %s\n", line(f))
	}
	lacks, _, err := w.diff(ctx, render(flows))
	if err != nil {
		return err
	}
	if !lacks && len(dropped) == 0 {
		klog.V(4).InfoS("Flows of the bridge are up to date", "bridge", w.bridge, "flows", len(flows))
		return nil
	}
	if _, err := w.ofctl(ctx, input.String(), "--bundle", "add-flows", w.target, "-"); err != nil {
		return err
	}
	klog.V(2).InfoS("Added flows to a bridge", "bridge", w.bridge, "flows", len(flows))
	return nil
}

func line(f host.Flow) string { return fmt.Sprintf("cookie=%#x,%s", Cookie, f) }

func render(flows []host.Flow) string {
	var out strings.Builder
	for _, f := range flows {
		out.WriteString(line(f))
		out.WriteByte('\n')
	}
	return out.String()
}
