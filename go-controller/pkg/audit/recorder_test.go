package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// files is a Sink in memory.
type files struct {
	all   []*bytes.Buffer // the last is the current file
	max   int             // bytes; 0: never full
	fails int             // how many of the next writes fail, after writing half of the data
	syncs int
}

func newFiles() *files { return &files{all: []*bytes.Buffer{{}}} }

func (f *files) Write(p []byte) (int, error) {
	b := f.all[len(f.all)-1]
	if f.fails > 0 {
		f.fails--
		b.Write(p[:len(p)/2])
		b.WriteString("\n")
		return 0, errors.New("no space left on device")
	}
	return b.Write(p)
}

func (f *files) Sync() error { f.syncs++; return nil }

func (f *files) Full() bool { return f.max > 0 && f.all[len(f.all)-1].Len() >= f.max }

func (f *files) Rotate() error { f.all = append(f.all, &bytes.Buffer{}); return nil }

// read returns the records of the files from an index on.
func (f *files) read(t testing.TB, from int) []Record {
	t.Helper()
	var all []Record
	for i, b := range f.all[from:] {
		records, _, err := Read(bytes.NewReader(b.Bytes()), fmt.Sprint("file", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, records...)
	}
	return all
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clock returns a clock that advances by one second on each call.
func clock(from time.Time) func() time.Time {
	return func() time.Time {
		from = from.Add(time.Second)
		return from
	}
}

func assignment(name, address, node string) Fact {
	return Fact{Object: Object{Kind: "EgressIP", Name: name, UID: "uid-" + name}, Address: netip.MustParseAddr(address), Node: node}
}

func use(name, address, pod, own string) Fact {
	namespace, podName, _ := strings.Cut(pod, "/")
	f := assignment(name, address, "")
	f.Pod = &Pod{Namespace: namespace, Name: podName, UID: "uid-" + podName, Address: own, Node: "ovn-worker"}
	return f
}

func why(f Fact, from string, gone bool) (string, string) {
	switch {
	case gone:
		return "NoNode", ""
	case f.Pod != nil:
		return "Programmed", ""
	case from != "":
		return "Moved", from + " is not reachable"
	}
	return "Assigned", ""
}

// lines formats records briefly.
func lines(records []Record) string {
	var out strings.Builder
	for _, r := range records {
		fmt.Fprintf(&out, "%d %s", r.Sequence, r.Type)
		if r.Object != nil {
			fmt.Fprintf(&out, " %s %s", r.Object, r.Address)
		}
		if r.From+r.To != "" {
			fmt.Fprintf(&out, " %q>%q", r.From, r.To)
		}
		if r.Pod != nil {
			fmt.Fprintf(&out, " %s %s %s", r.Pod.Key(), r.Pod.UID, r.Pod.Address)
		}
		if r.Reason != "" {
			fmt.Fprintf(&out, " %s", r.Reason)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func wantLines(t *testing.T, what string, got []Record, want ...string) {
	t.Helper()
	if g, w := lines(got), strings.Join(want, "\n")+"\n"; g != w {
		t.Errorf("%s:\n%swant\n%s", what, g, w)
	}
}

// TestRecorder: each change is recorded once, and what has not changed is not recorded.
func TestRecorder(t *testing.T) {
	f := newFiles()
	r := NewRecorder("master-1", clock(start), f)
	r.Found("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "n1")})
	r.Found("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "n3")}) // only the first call counts
	r.Found("pod prod/web", nil)
	r.Set("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "n1")}, why)
	if r.Expects("pod prod/web") || !r.Expects("pod prod/db") {
		t.Error("what was found is not remembered")
	}
	r.Complete()
	r.Complete()
	if r.Expects("pod prod/db") {
		t.Error("something is expected although all is there")
	}
	r.Set("pod prod/web", []Fact{use("prod", "172.18.0.33", "prod/web", "10.244.1.3")}, why)
	r.Set("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "n2"), assignment("prod", "fd00::33", "n2")}, why)
	unknown := use("prod", "172.18.0.33", "prod/web", "10.244.1.3")
	unknown.Pod.UID, unknown.Object.UID = "", ""
	r.Set("pod prod/web", []Fact{unknown}, why) // no change as far as is known
	another := use("prod", "172.18.0.33", "prod/web", "10.244.1.3")
	another.Pod.UID = "uid-later"
	r.Set("pod prod/web", []Fact{another}, why)
	r.Set("pod prod/web", nil, why)
	r.Set("EgressIP/prod", nil, why)
	if got := r.Current("EgressIP/prod"); len(got) > 0 {
		t.Errorf("%v is left", got)
	}
	if err := r.flush(); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "the log", f.read(t, 0),
		`1 Started`,
		`2 Found EgressIP/prod 172.18.0.33 "">"n1"`,
		`3 Complete`,
		`4 PodAdded EgressIP/prod 172.18.0.33 prod/web uid-web 10.244.1.3 Programmed`,
		`5 Assigned EgressIP/prod 172.18.0.33 "n1">"n2" Moved`,
		`6 Assigned EgressIP/prod fd00::33 "">"n2" Assigned`,
		`7 PodRemoved EgressIP/prod 172.18.0.33 prod/web uid-web 10.244.1.3 NoNode`,
		`8 PodAdded EgressIP/prod 172.18.0.33 prod/web uid-later 10.244.1.3 Programmed`,
		`9 PodRemoved EgressIP/prod 172.18.0.33 prod/web uid-later 10.244.1.3 NoNode`,
		`10 Released EgressIP/prod 172.18.0.33 "n2">"" NoNode`,
		`11 Released EgressIP/prod fd00::33 "n2">"" NoNode`)
	if f.syncs == 0 {
		t.Error("nothing was synced")
	}
}

// TestEachFileStandsAlone: the last file alone has the current state, and all files together say the same as one
// that is not rotated.
func TestEachFileStandsAlone(t *testing.T) {
	f, whole := newFiles(), newFiles()
	f.max = 2000
	a, b := NewRecorder("master-1", clock(start), f), NewRecorder("master-1", clock(start), whole)
	for i := range 60 {
		for _, r := range []*Recorder{a, b} {
			if i == 10 {
				r.Complete()
			}
			r.Set(fmt.Sprint("EgressIP/", i%3), []Fact{assignment(fmt.Sprint(i%3), fmt.Sprint("172.18.0.", i%3), fmt.Sprint("n", i))}, why)
			if err := r.flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(f.all) < 4 {
		t.Fatalf("%d files", len(f.all))
	}
	now := func(records []Record) (open, all []string) {
		tl := NewTimeline(records)
		if len(tl.Gaps) > 0 {
			t.Errorf("gaps: %v", tl.Gaps)
		}
		for _, p := range tl.Periods {
			text := fmt.Sprint(p.Object, p.Address, p.Node)
			if all = append(all, text); p.End == nil {
				open = append(open, text)
			}
		}
		slices.Sort(open)
		return open, all
	}
	last, _ := now(f.read(t, len(f.all)-1))
	together, periods := now(f.read(t, 0))
	want, wantPeriods := now(whole.read(t, 0))
	if !slices.Equal(last, want) || !slices.Equal(together, want) || !slices.Equal(periods, wantPeriods) {
		t.Errorf("the last file says %v, all of them %v, want %v\nperiods %v\nwant %v", last, together, want, periods, wantPeriods)
	}
}

// TestSinkFails: records wait for a sink that fails, and none is lost or duplicated.
func TestSinkFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles()
		r := NewRecorder("master-1", time.Now, f)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		synctest.Wait()
		f.fails = 3
		r.Set("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "n1")}, why)
		synctest.Wait()
		r.Set("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "n2")}, why)
		<-time.After(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		wantLines(t, "the log", f.read(t, 0), `1 Started`,
			`2 Assigned EgressIP/prod 172.18.0.33 "">"n1" Assigned`, `3 Assigned EgressIP/prod 172.18.0.33 "n1">"n2" Moved`)
	})
}

// TestSinkFailsForLong: what does not fit is lost, the log says so, and the current state is stated again.
func TestSinkFailsForLong(t *testing.T) {
	f := newFiles()
	r := NewRecorder("master-1", clock(start), f)
	r.Complete()
	r.Set("EgressIP/gone", []Fact{assignment("gone", "172.18.0.34", "n1")}, why)
	if err := r.flush(); err != nil {
		t.Fatal(err)
	}
	f.fails = 1
	r.Set("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "n1")}, why)
	if err := r.flush(); err == nil {
		t.Fatal("the sink does not fail")
	}
	r.Set("EgressIP/gone", nil, why) // is lost
	for i := range maxWaiting + 2 {
		r.Set("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", fmt.Sprint("n", i%2))}, why)
	}
	if err := r.flush(); err != nil {
		t.Fatal(err)
	}
	records := f.read(t, 0)
	if n := len(records); n < 5 || n > 12 {
		t.Fatalf("%d records", n)
	}
	tl := NewTimeline(records)
	if len(tl.Gaps) != 1 {
		t.Errorf("gaps: %v", tl.Gaps)
	}
	var open []string
	for _, p := range tl.Periods {
		if p.End == nil {
			open = append(open, fmt.Sprint(p.Object, p.Node))
		}
	}
	if !slices.Equal(open, []string{"EgressIP/prodn1"}) {
		t.Errorf("at the end %v, want what is there", open)
	}
}

// TestLastRecords: what is waiting when the master stops is written.
func TestLastRecords(t *testing.T) {
	for range 20 { // the records and the stop arrive in either order
		f := newFiles()
		r := NewRecorder("master-1", clock(start), f)
		r.Set("EgressIP/prod", []Fact{assignment("prod", "172.18.0.33", "n1")}, why)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if got := f.read(t, 0); len(got) != 2 {
			t.Errorf("%d records", len(got))
		}
	}
}
