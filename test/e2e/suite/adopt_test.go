package suite

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/adopttest"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// takenOver has "ovnkube adopt" and the next master take over rows without ownership marks, like those of another
// implementation. No connection may notice it, and every row must be the one that it was.
func (f *faultTest) takenOver(t *testing.T, before lab.State) {
	f.suffers(t, "cluster taken over", none, func() { f.takeOver(t) })
	f.sameState(t, before)
	t.Run("Change", f.newAddress)
	f.inspect(t)
}

// takeOver stops the master, removes the marks, and starts the master again once the rows are adopted.
func (f *faultTest) takeOver(t *testing.T) {
	const daemon = "ovnkube-master"
	ctx, master := t.Context(), processes[0]
	pid, err := f.pid(ctx, master)
	if err != nil {
		t.Fatal(err)
	}
	command, err := f.Kin.Exec(ctx, master.node, "cat", "/proc/"+pid+"/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSuffix(command, "\x00"), "\x00")
	operations := []any{"OVN_Northbound"}
	for _, op := range adopttest.Disown() {
		operations = append(operations, op)
	}
	transaction, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Service(ctx, "stop", master.node, daemon); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Service(ctx, "start", master.node, daemon); err != nil {
			t.Fatal(err)
		}
		f.atWork(t, master)
	}()
	out, err := f.Kin.Exec(ctx, master.node, "ovsdb-client", "transact", "unix:/run/ovn/ovnnb_db.sock", string(transaction))
	if err != nil {
		t.Fatal(err)
	}
	var changes []struct {
		Count int    `json:"count"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal([]byte(out), &changes); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	disowned := 0
	for _, c := range changes {
		disowned += c.Count
		if c.Error != "" {
			t.Fatalf("the marks were not removed: %s", out)
		}
	}
	if disowned == 0 {
		t.Fatalf("no row had a mark: %s", out)
	}
	// The command accepts the master's flags, but --init-master with the name of the node.
	text, err := f.Kin.Exec(ctx, master.node, append([]string{args[0], "adopt", "--yes"}, args[3:]...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf("Rows that are understood: %d\n", disowned), "and stay as they are: 0\n", fmt.Sprintf("from now on: %d\n", disowned)} {
		if !strings.Contains(text, want) {
			t.Errorf("ovnkube adopt does not say %q:\n%s", want, text)
		}
	}
}
