package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/test/scale/result"
)

// asCommand is the environment variable that makes the test binary run as the command.
const asCommand = "SCALE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(command(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// TestTiny runs all measurements of a large cluster on one of a few nodes.
// It needs root, OVN, and the programs of "make build cluster-binaries". It does not check how long anything
// takes, only how much is written.
func TestTiny(t *testing.T) {
	all := measured(t, "run")
	phase := func(name string) result.Result { return phaseOf(t, all, name) }
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
		"northbound leader lost",
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

// TestAgent measures the agent of a node. Objects of other nodes cost it neither a program nor a
// flow, and a start in an unchanged cluster changes no flow.
func TestAgent(t *testing.T) {
	all := measured(t, "agent")
	phase := func(name string) result.Result { return phaseOf(t, all, name) }
	started := phase("agent started on a new node")
	if started.Done == 0 || started.CPU == 0 || started.SwitchCPU == 0 || started.Peak == 0 || started.Flows == 0 || started.AllExecs() == 0 ||
		started.Requests["list egressips"] == 0 || started.Requests["watch nodes"] == 0 || started.Received == 0 || started.Kinds["CNI socket"] == 0 {
		t.Errorf("measured at a start: %+v", started)
	}
	if r := phase("agent restarted"); r.Changed != 0 || r.Done == 0 || r.Done > 9000 {
		t.Errorf("a restart changed %d flows, and the node took pods after %v ms: %+v", r.Changed, r.Done, r)
	}
	for _, name := range []string{
		"remote EgressIP created", "remote EgressIP moved", "remote pod started", "remote pod deleted", "status of another node written",
		"Service created", "Service deleted",
	} {
		// Every half minute the drivers check for drift.
		const looks = 6
		if r := phase(name); r.Changed != 0 || r.AllExecs() > looks || r.AllRequests() != 0 {
			t.Errorf("%s: %d flows changed, programs %v, requests %v", name, r.Changed, r.Execs, r.Requests)
		}
	}
	for name, flows := range map[string]int{
		"remote EgressIP assigned": flowsElsewhere, "remote EgressIP's address changed": 2 * flowsElsewhere, "remote EgressIP deleted": flowsElsewhere,
		"local EgressIP assigned": flowsHere, "local EgressIP deleted": flowsHere + 2*flowsElsewhere,
	} {
		if r := phase(name); r.Changed != flows || r.First == 0 {
			t.Errorf("%s: %d flows changed, want %d, the first after %v ms", name, r.Changed, flows, r.First)
		}
	}
	for _, name := range []string{"local EgressIP assigned", "local EgressService assigned"} {
		if r := phase(name); r.Done == 0 || r.Requests["patch egressips/status"]+r.Requests["patch egressservices/status"] != 1 {
			t.Errorf("%s: done after %v ms, requests %v", name, r.Done, r.Requests)
		}
	}
	for _, name := range []string{"node added", "node deleted", "Service with a node port created", "Service with a node port deleted"} {
		if r := phase(name); r.Rows == 0 {
			t.Errorf("%s: no rule changed", name)
		}
	}
}

// TestAnswers measures answers about a cluster without a master.
func TestAnswers(t *testing.T) {
	all := measured(t, "ask")
	if len(all) != 1 || all[0].Phase != "explain a pod" || all[0].Done == 0 || all[0].CPU == 0 || all[0].Peak == 0 {
		t.Errorf("measured: %+v", all)
	}
}

// phaseOf returns the first measurement of a phase.
func phaseOf(t *testing.T, all []result.Result, name string) result.Result {
	t.Helper()
	i := slices.IndexFunc(all, func(r result.Result) bool { return r.Phase == name })
	if i < 0 {
		t.Fatalf("%s was not measured", name)
	}
	return all[i]
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
