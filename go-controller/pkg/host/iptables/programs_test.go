package iptables

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-iptables/iptables"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// counted puts wrappers in front of the iptables programs that record each run. The returned
// function returns the runs since its last call.
func counted(t *testing.T) func() []string {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			name := family + suffix
			program, err := exec.LookPath(name)
			if err != nil {
				t.Fatal(err)
			}
			script := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\nexec %s \"$@\"\n", name, log, program)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() []string {
		text, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.WriteFile(log, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(strings.Split(string(text), "\n"), func(s string) bool { return s == "" })
	}
}

// everywhere declares chains in three tables of both families.
func everywhere() [][]host.Chain {
	return [][]host.Chain{
		both(1, "nat", "NAT", host.Jump{From: "POSTROUTING"}), both(2, "nat", "LAST", host.Jump{From: "POSTROUTING"}),
		both(1, "filter", "FILTER", host.Jump{From: "FORWARD"}), both(1, "mangle", "MANGLE", host.Jump{From: "PREROUTING"}),
	}
}

func inEvery(comment string) host.Rules {
	rules := host.Rules{}
	for _, chains := range everywhere() {
		for _, c := range chains {
			rules[c.ChainKey] = []host.Rule{host.Spec{Comment: comment, Target: "RETURN"}.Rule()}
		}
	}
	return rules
}

// TestProgramsRun counts the programs that are run: for any number of tables, one to read and one
// to write those of a family that has changed, and none if nothing has.
func TestProgramsRun(t *testing.T) {
	ran := counted(t)
	netnstest.New(t)
	w := newWriter(t, everywhere()...)
	for _, step := range []struct {
		what string
		pass func() error
		want int
	}{
		{"the start", func() error { return w.Apply(t.Context(), "a", inEvery("one")) }, 3 * 2}, // and one to get the version
		{"nothing new", func() error { return w.Resync(t.Context()) }, 2},
		{"the same again", func() error { return w.Apply(t.Context(), "a", inEvery("one")) }, 0},
		{"nothing of another one", func() error { return w.Apply(t.Context(), "b", nil) }, 0},
		{"the sweep of nothing", func() error { return w.Sweep(t.Context()) }, 2},
		{"every chain changed", func() error { return w.Apply(t.Context(), "a", inEvery("two")) }, 2 * 2},
		{"one chain changed", func() error {
			rules := inEvery("two")
			rules[nat(topology.IPv4, "NAT")] = nil
			return w.Apply(t.Context(), "a", rules)
		}, 1 + 1},
	} {
		if err := step.pass(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := ran(); len(got) != step.want {
			t.Errorf("%s ran %d programs, want %d:\n%s", step.what, len(got), step.want, strings.Join(got, "\n"))
		}
	}
}

// TestProgramsRunSingleStack: a contribution for one family does not run programs of the other.
func TestProgramsRunSingleStack(t *testing.T) {
	ran := counted(t)
	netnstest.New(t)
	chain := host.ChainKey{Family: topology.IPv6, Table: "nat", Name: "OVN-KUBE-A"}
	w := newWriter(t, []host.Chain{{ChainKey: chain}})
	apply := func() {
		t.Helper()
		if err := w.Apply(t.Context(), "a", host.Rules{chain: {"-j RETURN"}}); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	ran()
	apply()
	if got := ran(); len(got) != 0 {
		t.Errorf("the same again ran %s", strings.Join(got, "\n"))
	}
}

// TestJumpsAsOthersSeeThem reads the jumps with an independent library: they exist, once, in the
// order of the chains, and are gone after cleanup.
func TestJumpsAsOthersSeeThem(t *testing.T) {
	netnstest.New(t)
	w := newWriter(t, everywhere()...)
	if err := w.Apply(t.Context(), "a", inEvery("one")); err != nil {
		t.Fatal(err)
	}
	for _, f := range topology.Families {
		ipt, err := iptables.New(iptables.IPFamily(protocol(f)))
		if err != nil {
			t.Fatal(err)
		}
		jumps, err := ipt.List("nat", "POSTROUTING")
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"-P POSTROUTING ACCEPT", "-A POSTROUTING -j OVN-KUBE-NAT", "-A POSTROUTING -j OVN-KUBE-LAST"}
		if !slices.Equal(jumps, want) {
			t.Errorf("%s: jumps %q, want %q", f, jumps, want)
		}
		for table, chain := range map[string]string{"nat": "OVN-KUBE-NAT", "filter": "OVN-KUBE-FILTER", "mangle": "OVN-KUBE-MANGLE"} {
			if ok, err := ipt.Exists(table, chain, "-m", "comment", "--comment", "one", "-j", "RETURN"); err != nil || !ok {
				t.Errorf("%s: the rule of %s: %t, %v", f, chain, ok, err)
			}
		}
	}
	if err := Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range topology.Families {
		ipt, err := iptables.New(iptables.IPFamily(protocol(f)))
		if err != nil {
			t.Fatal(err)
		}
		if there, err := ipt.ChainExists("nat", "OVN-KUBE-NAT"); err != nil || there {
			t.Errorf("%s: the chain after clean-up: %t, %v", f, there, err)
		}
	}
}

// TestCanWait: an older iptables-restore does not know -w.
func TestCanWait(t *testing.T) {
	for version, want := range map[[3]int]bool{{1, 4, 21}: false, {1, 6, 1}: false, {1, 6, 2}: true, {1, 8, 0}: true, {2, 0, 0}: true} {
		if got := canWait(version[0], version[1], version[2]); got != want {
			t.Errorf("%v: %t", version, got)
		}
	}
}

// TestOneTableRefused: a table that the kernel refuses does not prevent others from being written,
// of either family.
func TestOneTableRefused(t *testing.T) {
	ns := netnstest.New(t)
	w := newWriter(t, everywhere()...)
	rules := inEvery("one")
	filter := host.ChainKey{Family: topology.IPv4, Table: "filter", Name: host.ChainPrefix + "FILTER"}
	rules[filter] = []host.Rule{"-j NO-SUCH-TARGET"}
	if err := w.Apply(t.Context(), "a", rules); err == nil || !strings.Contains(err.Error(), "filter") || strings.Contains(err.Error(), "mangle") {
		t.Errorf("error %v, want one about filter", err)
	}
	for key, want := range rules {
		if key == filter {
			continue
		}
		if got := rulesIn(ns, key); !slices.Equal(got, want) {
			t.Errorf("%s %s %s: %v, want %v", key.Family, key.Table, key.Name, got, want)
		}
	}
}

// TestNoPrograms: the error on a host without iptables says what is missing.
func TestNoPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	w := newWriter(t, everywhere()...)
	err := w.Resync(t.Context())
	if err == nil || !strings.Contains(err.Error(), "iptables") || !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error %v", err)
	}
}
