package app

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
)

// TestAuditIsWrittenToTheEnd: all records are in the file when a leader has ended, and the next
// leader appends to it.
func TestAuditIsWrittenToTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "egress.log")
	for _, node := range []string{"n1", "n2"} {
		sink, err := openAudit(config.Logging{EgressAudit: path, EgressAuditMaxSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		recorder, end := startAudit(sink, "master-1")
		recorder.Set("EgressIP/prod", []audit.Fact{{Object: audit.Object{Kind: "EgressIP", Name: "prod"},
			Address: netip.MustParseAddr("172.18.0.33"), Node: node}}, func(audit.Fact, string, bool) (string, string) { return "Assigned", "" })
		end()
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	records, problems, err := audit.Read(strings.NewReader(string(data)), path)
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	var got []string
	for _, r := range records {
		got = append(got, string(r.Type)+r.To)
	}
	if text := strings.Join(got, " "); text != "Started Assignedn1 Started Assignedn2" {
		t.Errorf("%s", text)
	}
}

// TestAuditFile: without the option there is no log, and a file that cannot be opened is an error.
func TestAuditFile(t *testing.T) {
	if sink, err := openAudit(config.Logging{}); sink != nil || err != nil {
		t.Errorf("without the option: %v, %v", sink, err)
	}
	if _, err := openAudit(config.Logging{EgressAudit: t.TempDir()}); err == nil || !strings.HasPrefix(err.Error(), "--egress-audit-log: ") {
		t.Errorf("a directory: %v, want an error that names the option", err)
	}
}
