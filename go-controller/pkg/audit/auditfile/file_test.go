package auditfile

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
)

func open(t *testing.T, path string, size int64, backups int) audit.Sink {
	t.Helper()
	s, err := Open(path, size, backups)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, s audit.Sink, lines string) {
	t.Helper()
	if n, err := s.Write([]byte(lines)); n != len(lines) || err != nil {
		t.Fatalf("%d bytes written: %v", n, err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "audit.log")
	write(t, open(t, path, 1000, 1), "one\n")
	write(t, open(t, path, 1000, 1), "two\nthr")
	write(t, open(t, path, 1000, 1), "four\n")
	if got, want := content(t, path), "one\ntwo\nthr\nfour\n"; got != want {
		t.Errorf("%q, want %q: what was torn stays a line of its own", got, want)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("everybody may read it: %v", info.Mode())
	}
}

func TestCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir, 1000, 1); err == nil {
		t.Error("a directory is taken for a file")
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "audit.log"), 1000, 1); err == nil {
		t.Error("a file is taken for a directory")
	}
}

func TestFullCountsWhatWasThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	s := open(t, path, 8, 1)
	write(t, s, "one\n")
	if s.Full() {
		t.Error("full after 4 of 8 bytes")
	}
	s = open(t, path, 8, 1)
	write(t, s, "two\n")
	if !s.Full() {
		t.Error("not full after 8 of 8 bytes")
	}
	if err := s.Rotate(); err != nil {
		t.Fatal(err)
	}
	if s.Full() {
		t.Error("a new file is full")
	}
	write(t, s, "three\n")
	if got := content(t, path); got != "three\n" {
		t.Errorf("the new file has %q", got)
	}
}

func TestStdout(t *testing.T) {
	s := open(t, Stdout, 1, 1)
	if s.Full() || s.Sync() != nil || s.Rotate() != nil {
		t.Error("standard output is taken for a file")
	}
}

// TestRecords: a recorder's files together contain every record, however they were rotated.
func TestRecords(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var want []string
	for term := range 3 {
		clock := func() time.Time { now = now.Add(time.Second); return now }
		r := audit.NewRecorder("master", clock, open(t, path, 1500, 0))
		for i := range 20 {
			node := fmt.Sprintf("n%d-%d", term, i)
			r.Set("EgressIP/prod", []audit.Fact{{Object: audit.Object{Kind: "EgressIP", Name: "prod"},
				Address: netip.MustParseAddr("172.18.0.33"), Node: node}}, func(audit.Fact, string, bool) (string, string) { return "Moved", "" })
			want = append(want, node)
			// The recorder stops after each record, which writes whatever is pending.
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.Run(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v: %v", files, err)
	}
	var records []audit.Record
	for _, name := range files {
		more, problems, err := audit.Read(strings.NewReader(content(t, name)), name)
		if err != nil || len(problems) > 0 {
			t.Fatal(problems, err)
		}
		records = append(records, more...)
	}
	tl := audit.NewTimeline(records)
	var got []string
	for _, p := range tl.Periods {
		got = append(got, p.Node)
	}
	if !slices.Equal(got, want) || len(tl.Gaps) > 0 {
		t.Errorf("%v, gaps %v\nwant %v", got, tl.Gaps, want)
	}
}
