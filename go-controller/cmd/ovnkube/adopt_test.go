package main

import (
	"bytes"
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
		{"no file", []string{"--config-file=/nonexistent/ovn.conf"}, "ovnkube adopt: --config-file: value \"/nonexistent/ovn.conf\": cannot be read; allowed: a readable file\n"},
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
