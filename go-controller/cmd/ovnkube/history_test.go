package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
)

const historyLog = `{"apiVersion":"egress.ovnkube/v1","time":"2026-03-01T11:00:00Z","leader":"m","term":"2026-03-01T11:00:00Z","sequence":1,"type":"Started"}
{"apiVersion":"egress.ovnkube/v1","time":"2026-03-01T11:00:01Z","leader":"m","term":"2026-03-01T11:00:00Z","sequence":2,"type":"Complete"}
{"apiVersion":"egress.ovnkube/v1","time":"2026-03-01T11:00:02Z","leader":"m","term":"2026-03-01T11:00:00Z","sequence":3,"type":"Assigned","object":{"kind":"EgressIP","name":"prod"},"family":"IPv4","address":"172.18.0.33","to":"n1","reason":"Assigned"}
{"apiVersion":"egress.ovnkube/v1","time":"2026-03-01T11:00:03Z","leader":"m","term":"2026-03-01T11:00:00Z","sequence":4,"type":"PodAdded","object":{"kind":"EgressIP","name":"prod"},"family":"IPv4","address":"172.18.0.33","pod":{"namespace":"prod","name":"web","address":"10.244.1.3"},"reason":"Programmed"}
`

// historyFiles are a log, a rotated one, a broken one, and a file with an unrelated name.
func historyFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	lines := strings.SplitAfter(historyLog, "\n")
	for name, text := range map[string]string{
		"egress.log":                         lines[2] + lines[3] + lines[3][:50],
		"egress-2026-03-01T11-00-01.500.log": lines[0] + lines[1],
		"egress-old.log":                     "nothing\n",
		"sub/broken.log":                     historyLog + "nothing\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestHistoryExitStatuses(t *testing.T) {
	dir := historyFiles(t)
	log, broken := filepath.Join(dir, "egress.log"), filepath.Join(dir, "sub", "broken.log")
	for _, tc := range []struct {
		name       string
		args       []string
		status     int
		out, error string
	}{
		{"address", []string{"address", "172.18.0.33", "--log", log}, 0, "node n1, by EgressIP/prod", ""},
		{"at a time", []string{"address", "172.18.0.33", "--at", "2026-03-01T11:30:00Z", "--log", log}, 0, "pod prod/web 10.244.1.3", ""},
		{"at a time of another zone", []string{"address", "172.18.0.33", "--at=2026-03-01T12:00:02.5+01:00", "--log", log}, 0, "Used by\n  no pod", ""},
		{"before the records", []string{"address", "172.18.0.33", "--at", "2026-02-01T11:30:00Z", "--log", log}, 1, "The answer may be incomplete.", ""},
		{"another address", []string{"address", "2001:db8::1", "--log", log}, 0, "Assigned to\n  no node", ""},
		{"pod", []string{"pod", "prod/web", "--log", log, "--since", "59m"}, 0, "172.18.0.33 of EgressIP/prod", ""},
		{"days", []string{"pod", "prod/web", "--since", "2d", "--log", log}, 1, "172.18.0.33 of EgressIP/prod", ""},
		{"copies", []string{"pod", "prod/web", "--log", log, "--log", log, "--log", dir + "/egress-2026-03-01T11-00-01.500.log"}, 0, "4 records, ", ""},
		{"a bad line", []string{"pod", "prod/web", "--log", broken}, 1, "! " + broken + ":5: invalid character", ""},
		{"a directory", []string{"pod", "prod/web", "--log", dir}, 1, "egress-old.log:1: invalid character", ""},
		{"yaml", []string{"pod", "prod/web", "--log", log, "-o", "yaml"}, 0, "\nkind: PodHistory\n", ""},
		{"no log", []string{"pod", "prod/web"}, 2, "", "--log is missing"},
		{"no such log", []string{"pod", "prod/web", "--log", filepath.Join(dir, "none")}, 2, "", "no such file"},
		{"no address", []string{"address", "web", "--log", log}, 2, "", `"web": no address`},
		{"no time", []string{"address", "172.18.0.33", "--at", "yesterday", "--log", log}, 2, "", "--at=yesterday: no time"},
		{"no duration", []string{"pod", "prod/web", "--since", "-1h", "--log", log}, 2, "", "--since=-1h: no duration"},
		{"no days", []string{"pod", "prod/web", "--since", "0d", "--log", log}, 2, "", "--since=0d: no duration"},
		{"no pod", []string{"pod", "web", "--log", log}, 2, "", `"web": no pod`},
		{"no object", []string{"address", "--log", log}, 2, "", "ADDRESS is missing"},
		{"unknown", []string{"node", "n1"}, 2, "", "node: unknown command"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			e := &egress{out: &out, now: func() time.Time { return egressTime }}
			status := e.run(t.Context(), append([]string{"history"}, tc.args...), &errs)
			if status != tc.status || !strings.Contains(out.String(), tc.out) || !strings.Contains(errs.String(), tc.error) || (errs.Len() == 0) != (tc.error == "") {
				t.Errorf("status %d, want %d; output:\n%s\nerrors: %s\nwant %q and %q", status, tc.status, out.String(), errs.String(), tc.out, tc.error)
			}
		})
	}
}

func TestHistoryJSON(t *testing.T) {
	var out, errs bytes.Buffer
	e := &egress{out: &out, now: func() time.Time { return egressTime }}
	status := e.run(t.Context(), []string{"history", "address", "172.18.0.33", "-o", "json", "--log", filepath.Join(historyFiles(t), "egress.log")}, &errs)
	var h audit.History
	if err := json.Unmarshal(out.Bytes(), &h); err != nil || status != 0 || h.APIVersion != audit.APIVersion || h.Kind != audit.KindAddressHistory ||
		!h.Complete || len(h.Assignments) != 1 || len(h.Pods) != 1 {
		t.Errorf("%v, status %d, decoded %+v from:\n%s%s", err, status, h, out.String(), errs.String())
	}
}

// The binary itself, with a log on standard input.
func TestHistoryProgram(t *testing.T) {
	cmd := ovnkube("egress", "history", "pod", "prod/web", "--log", "-")
	cmd.Stdin = strings.NewReader(historyLog)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "172.18.0.33 of EgressIP/prod") {
		t.Errorf("%v: %s", err, out)
	}
}
