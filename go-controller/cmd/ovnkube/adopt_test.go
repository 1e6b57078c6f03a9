package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestAdoptArguments(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string // of the error
	}{
		{"argument", []string{"everything"}, "ovnkube adopt: everything: unexpected argument; allowed: flags only, see ovnkube adopt --help\n"},
		{"unknown flag", []string{"--all"}, "ovnkube adopt: --all: unknown flag; allowed: the flags in ovnkube adopt --help\n"},
		{"no file", []string{"--config-file=/nonexistent/ovn.conf"}, "ovnkube adopt: --config-file: value \"/nonexistent/ovn.conf\": cannot be read: no such file or directory; allowed: a readable file\n"},
		{"no address", []string{"--nb-address=nowhere", "--yes"}, "ovnkube adopt: --nb-address: value \"nowhere\": allowed: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if status := runAdopt(t.Context(), tc.args, &out, &errs); status != 1 || !strings.HasPrefix(errs.String(), tc.want) || out.Len() > 0 {
				t.Errorf("status %d, output %q, errors %q", status, out.String(), errs.String())
			}
		})
	}
}

// TestAdoptNeedsOnlyTheNorthboundDatabase: it accepts the file of a cluster on a host that has only the northbound key and
// certificates.
func TestAdoptNeedsOnlyTheNorthboundDatabase(t *testing.T) {
	file := write(t, "[page]\nprivkey=/none/page.key\ncert=/none/page.crt\n[ovnnorth]\naddress=unix:/none/nb.sock\n"+
		"[ovnsouth]\naddress=ssl:192.0.2.1:6642\n[kubernetes]\ncacert=/none/ca\ntokenfile=/none/token\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it does not wait for the database
	var out, errs bytes.Buffer
	if status := runAdopt(ctx, []string{"--config-file=" + file}, &out, &errs); status != 1 || strings.Contains(errs.String(), "cannot be read") ||
		!strings.Contains(errs.String(), context.Canceled.Error()) {
		t.Errorf("status %d, errors %q, want it to get as far as the database", status, errs.String())
	}
}
