package iptables

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// legacy puts the programs of legacy iptables first in the path.
func legacy(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", programsOf(t, "legacy")+":"+os.Getenv("PATH"))
}

// programsOf returns a directory in which the programs of a backend, nft or legacy, have the names without it.
func programsOf(t *testing.T, backend string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			program, err := exec.LookPath(name + "-" + backend + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program, filepath.Join(dir, name+suffix)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestLegacyState: the state shows whatever others add to or delete from legacy tables, and
// repairing them restores the former state.
func TestLegacyState(t *testing.T) {
	ns := netnstest.New(t)
	w := newWriter(t, everywhere()...)
	if is, err := w.Legacy(); is || err != nil {
		t.Errorf("legacy: %t, %v", is, err)
	}
	legacy(t)
	if is, err := w.Legacy(); !is || err != nil {
		t.Errorf("legacy: %t, %v", is, err)
	}
	w = newWriter(t, everywhere()...)
	if err := w.Apply(t.Context(), "a", inEvery("x")); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		t.Helper()
		s, err := w.LegacyState()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := state()
	for _, command := range [][]string{
		{"iptables", "-t", "nat", "-F", "OVN-KUBE-NAT"},
		{"ip6tables", "-t", "nat", "-F", "POSTROUTING"},
		{"iptables", "-t", "filter", "-F"},
		{"ip6tables", "-t", "mangle", "-D", "PREROUTING", "1"},
		{"iptables", "-t", "nat", "-A", "OVN-KUBE-LAST", "-j", "ACCEPT"},
	} {
		if again := state(); again != before {
			t.Errorf("before %v the state is\n%s\nwas\n%s", command, again, before)
		}
		ns.Run(command[0], command[1:]...)
		if state() == before {
			t.Errorf("%v does not show", command)
		}
		if err := w.Resync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
