// Package auditlog is an in-memory egress audit log for tests of controllers that write one: a Log outlives the
// masters that record into it, and Kill simulates their being killed.
//
// Imported by tests only.
package auditlog

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
)

// Log is an audit.Sink in memory.
type Log struct {
	mu     sync.Mutex
	lines  bytes.Buffer
	killed bool
}

// Write implements audit.Sink.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed {
		return len(p), nil
	}
	return l.lines.Write(p)
}

// Sync implements audit.Sink.
func (*Log) Sync() error { return nil }

// Full implements audit.Sink.
func (*Log) Full() bool { return false }

// Rotate implements audit.Sink.
func (*Log) Rotate() error { return nil }

// Kill discards whatever is written from now on, as if the master had been killed. The next recorder writes again.
func (l *Log) Kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = true
}

// String returns the log's lines.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// Start returns a recorder, and a function that stops it after its master has stopped.
func (l *Log) Start(t testing.TB) (*audit.Recorder, func()) {
	l.mu.Lock()
	l.killed = false
	l.mu.Unlock()
	r := audit.NewRecorder("master", time.Now, l)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return r, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// Timeline returns the timeline of the log's records.
func (l *Log) Timeline(t testing.TB) *audit.Timeline {
	t.Helper()
	records, problems, err := audit.Read(bytes.NewReader([]byte(l.String())), "log")
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	tl := audit.NewTimeline(records)
	if len(tl.Gaps) > 0 {
		t.Error(tl.Gaps)
	}
	return tl
}

// Assignment returns an assignment in the format of Open and Nodes.
func Assignment(name, uid, address, node string) string {
	return name + " " + uid + " " + address + " on " + node
}

// Use returns the use of an address by a pod "namespace/name" with its own address, in the format of Open.
func Use(name, address, pod, own string) string {
	return name + " " + address + " of " + pod + " " + own
}

// Open returns the periods that have not ended, sorted.
func Open(tl *audit.Timeline) []string {
	var all []string
	for _, p := range tl.Periods {
		switch {
		case p.End != nil:
		case p.Pod == nil:
			all = append(all, Assignment(p.Object.Name, p.Object.UID, p.Address, p.Node))
		default:
			all = append(all, Use(p.Object.Name, p.Address, p.Pod.Key(), p.Pod.Address))
		}
	}
	slices.Sort(all)
	return all
}

// Nodes returns the nodes that each address of each object, "name uid address", had in turn; "" is none.
func Nodes(tl *audit.Timeline) map[string][]string {
	all, end := map[string][]string{}, map[string]*audit.Moment{}
	for _, p := range tl.Periods {
		if p.Pod != nil {
			continue
		}
		k := p.Object.Name + " " + p.Object.UID + " " + p.Address
		if e := end[k]; e != nil && *e != p.Begin { // it did not move
			all[k] = append(all[k], "")
		}
		all[k], end[k] = append(all[k], p.Node), p.End
	}
	for k, e := range end {
		if e != nil {
			all[k] = append(all[k], "")
		}
	}
	return all
}

// Text returns the periods as lines with the reasons why they began and ended: those of nodes, then those of each
// pod. They are grouped because the order between a node and a pod depends on which worker is faster.
func Text(tl *audit.Timeline) []string {
	who := func(p audit.Period) string {
		if p.Pod == nil {
			return ""
		}
		return p.Pod.Key() + " " + p.Pod.Address
	}
	var all []string
	for _, p := range slices.SortedStableFunc(slices.Values(tl.Periods), func(a, b audit.Period) int { return strings.Compare(who(a), who(b)) }) {
		what := "node " + p.Node
		if p.Pod != nil {
			what = "pod " + p.Pod.Key() + " " + p.Pod.Address + " on " + p.Pod.Node
		}
		text := p.Object.Name + " " + p.Address + " " + what + ": " + reason(p.Begin)
		if p.End != nil {
			text += " until " + reason(*p.End)
		}
		all = append(all, text)
	}
	return all
}

func reason(m audit.Moment) string {
	if m.Observed {
		return "observed"
	}
	return m.Reason
}
