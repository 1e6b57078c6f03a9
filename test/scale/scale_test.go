package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/test/scale/result"
)

// asCommand is set where the test binary is to be the command.
const asCommand = "SCALE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(command(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// TestTiny measures a cluster of a few nodes with all that a large one is measured with.
// It needs root, OVN, and what "make build cluster-binaries" has built. How long anything
// takes says nothing here; how much is written does.
func TestTiny(t *testing.T) {
	all := measured(t, "run")
	phase := func(name string) result.Result {
		t.Helper()
		i := slices.IndexFunc(all, func(r result.Result) bool { return r.Phase == name })
		if i < 0 {
			t.Fatalf("%s was not measured", name)
		}
		return all[i]
	}
	cold := phase("cold start")
	if cold.Kinds["ports of pods"] == 0 || cold.Kinds["egressip"] == 0 || cold.Kinds["egressservice"] == 0 || cold.Kinds["externalroute"] == 0 {
		t.Errorf("kinds of rows at a cold start: %v", cold.Kinds)
	}
	if cold.Raw == 0 || cold.RawRows == 0 || cold.CPU == 0 || cold.Peak == 0 || cold.Sent == 0 || cold.AllWrites() == 0 {
		t.Errorf("measured at a cold start: %+v", cold)
	}
	for _, name := range []string{"restart, nothing changed", "taken over", "leader change"} {
		if r := phase(name); r.Rows != 0 || r.AllWrites() != 0 {
			t.Errorf("%s: rows changed until %v ms, API writes %v", name, r.Rows, r.Writes)
		}
	}
	for _, name := range []string{
		"Service created", "Service deleted", "policy created", "policy deleted", "EgressService created", "EgressService deleted",
		"endpoint gone", "endpoint added", "EgressIP created", "EgressIP deleted", "pod started", "pod deleted",
		"pod of an EgressIP started", "pod of an EgressIP deleted", "namespace chosen", "namespace not chosen any more",
		"node added", "node deleted", "node may hold no addresses", "host of EgressServices lost", "node with egress addresses lost",
	} {
		if r := phase(name); r.Transactions == 0 || r.Rows == 0 {
			t.Errorf("%s: %d transactions, rows after %v ms", name, r.Transactions, r.Rows)
		}
	}
	for _, name := range []string{"explain a pod", "status", "what if a node is lost"} {
		if r := phase(name); r.Done == 0 || r.CPU == 0 || r.Peak == 0 {
			t.Errorf("measured of %s: %+v", name, r)
		}
	}
}

// TestAnswers asks about a cluster that needs no master.
func TestAnswers(t *testing.T) {
	all := measured(t, "ask")
	if len(all) != 1 || all[0].Phase != "explain a pod" || all[0].Done == 0 || all[0].CPU == 0 || all[0].Peak == 0 {
		t.Errorf("measured: %+v", all)
	}
}

// measured returns what a command measures on the smallest cluster.
func measured(t *testing.T, command string) []result.Result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "scale.json")
	const built = "../../_output"
	cmd := exec.CommandContext(t.Context(), self, command, "--size=tiny", "--repeat=1", "--out="+out,
		"--kubernetes="+built+"/kin/bin", "--ovnkube="+built+"/bin/ovnkube", "--crds=../../dist/crds")
	cmd.Env = append(os.Environ(), asCommand+"=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	all, err := result.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
