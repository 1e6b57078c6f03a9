package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	historyName = "history"
	// auditLog is the file of the master's audit log, on the control plane.
	auditLog = "/run/egress-audit.log"
)

var historyIPs = addresses("172.18.0.221", "fc00:f853:ccd:e793::221")

// heldAt says which node holds the addresses at a time; node is empty for none.
type heldAt struct {
	at   time.Time
	node string
}

// historyTest asks which pods were behind egress addresses.
type historyTest struct {
	*egressIPTest
	ips     []netip.Addr
	pod     lab.Pod
	moments []heldAt
}

// history moves the addresses of an EgressIP, has their node fail, and deletes the EgressIP, each
// time with a new leader. "ovnkube egress history" must tell for each of these times which node and
// which pod were behind the addresses, at the end too, and each change must be recorded once.
func (s *suite) history(t *testing.T) {
	pod, err := s.RunServer(t.Context(), "history-0", lab.ControlPlane, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &historyTest{egressIPTest: s.egressIPOf(t, pod), ips: s.OfFamilies(historyIPs), pod: pod}
	master := processOf(t, "ovnkube master")
	terms := h.terms(t)
	h.assignable(t, "ovn-worker")
	h.choose(t, historyName, pod.Name)
	h.create(t, historyName, h.ips)
	h.note(t, "ovn-worker")

	h.kill(t, master)
	h.assignable(t, "ovn-worker", "ovn-worker2") // otherwise no node has them between the two changes
	h.assignable(t, "ovn-worker2")
	h.movedFrom(t, historyName, h.ips[0], "ovn-worker")
	h.note(t, "ovn-worker2")

	h.kill(t, master)
	h.assignable(t, "ovn-worker", "ovn-worker2")
	if err := h.Kin.Node(t.Context(), "kill", "ovn-worker2"); err != nil {
		t.Fatal(err)
	}
	h.movedFrom(t, historyName, h.ips[0], "ovn-worker2")
	h.note(t, "ovn-worker")
	h.powerOn(t, "ovn-worker2")

	h.kill(t, master)
	h.remove(t, historyName)
	h.note(t, "")

	if led := h.terms(t) - terms; led != 3 {
		t.Errorf("%d masters have begun to lead, want 3", led)
	}
	for _, m := range h.moments {
		for _, a := range h.ips {
			if err := h.tells(t.Context(), a, m); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		}
	}
	h.ofPod(t)
	h.recordedOnce(t)
	h.choose(t, historyName)
	h.assignable(t)
	if err := h.DeletePod(t.Context(), pod.Name); err != nil {
		t.Error(err)
	}
}

// note waits until a node has the addresses and the records say so.
func (h *historyTest) note(t *testing.T, node string) {
	t.Helper()
	if node != "" {
		for a, holder := range h.programmed(t, historyName) {
			if holder != node {
				t.Errorf("%s is held by %s, not by %s", a, holder, node)
			}
		}
	}
	for _, a := range h.ips {
		err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("the records to tell who has %s", a), func(ctx context.Context) error {
			return h.tells(ctx, a, heldAt{time.Now(), node})
		})
		if err != nil {
			t.Error(err)
		}
	}
	h.moments = append(h.moments, heldAt{time.Now(), node})
}

// historyAnswer has the fields of an answer that the test reads; docs/egress-history.md has the
// whole schema.
type historyAnswer struct {
	Assignments []historyPeriod `json:"assignments"`
	Pods        []historyPeriod `json:"pods"`
}

type historyPeriod struct {
	Address netip.Addr `json:"address"`
	Node    string     `json:"node"`
	Pod     struct {
		Name    string     `json:"name"`
		Address netip.Addr `json:"address"`
	} `json:"pod"`
}

// asks runs the command, which does not need the cluster. An answer that may be incomplete is an
// error.
func (h *historyTest) asks(ctx context.Context, args ...string) (answer historyAnswer, err error) {
	log, err := h.Kin.Exec(ctx, lab.ControlPlane, "cat", auditLog)
	if err != nil {
		return answer, err
	}
	program := filepath.Join(filepath.Dir(h.Kin.Program), "ovnkube")
	cmd := exec.CommandContext(ctx, program, append(append([]string{"egress", "history"}, args...), "--log", "-", "--output", "json")...)
	cmd.Stdin, cmd.Env = strings.NewReader(log), append(os.Environ(), "KUBECONFIG=/nowhere")
	out, err := cmd.Output()
	if err != nil {
		var status *exec.ExitError
		if errors.As(err, &status) {
			err = fmt.Errorf("%w: %s", err, status.Stderr)
		}
		return answer, fmt.Errorf("%q: %w: %s", args, err, out)
	}
	return answer, json.Unmarshal(out, &answer)
}

// tells returns an error unless the records say that an address was held as given.
func (h *historyTest) tells(ctx context.Context, a netip.Addr, held heldAt) error {
	at := held.at.Format(time.RFC3339Nano)
	answer, err := h.asks(ctx, "address", a.String(), "--at", at)
	if err != nil {
		return err
	}
	have, want := []string{}, []string{}
	for _, x := range answer.Assignments {
		have = append(have, x.Node)
	}
	for _, x := range answer.Pods {
		have = append(have, x.Pod.Name+" "+x.Pod.Address.String())
	}
	if held.node != "" {
		want = append(want, held.node, h.pod.Name+" "+h.pod.Address(a.Is4()).String())
	}
	if !slices.Equal(have, want) {
		return fmt.Errorf("at %s, %q was behind %s, want %q", at, have, a, want)
	}
	return nil
}

// ofPod asks with which addresses the pod left, and from which nodes, since each of the times.
func (h *historyTest) ofPod(t *testing.T) {
	for i, m := range h.moments {
		answer, err := h.asks(t.Context(), "pod", lab.Namespace+"/"+h.pod.Name, "--since", time.Since(m.at).String())
		if err != nil {
			t.Error(err)
			continue
		}
		for _, a := range h.ips {
			var have, want []string
			for _, x := range slices.Concat(answer.Assignments, answer.Pods) {
				if x.Address == a {
					have = append(have, x.Node+x.Pod.Name)
				}
			}
			for _, held := range h.moments[i:] {
				if held.node != "" {
					want = append(want, held.node)
				}
			}
			if m.node != "" {
				want = append(want, h.pod.Name)
			}
			if !slices.Equal(have, want) {
				t.Errorf("since %s, %s was used by %q, want %q", m.at.Format(time.RFC3339Nano), a, have, want)
			}
		}
	}
}

// auditRecord has the fields of a record that the test reads; docs/egress-history.md has the whole
// schema.
type auditRecord struct {
	Leader   string    `json:"leader"`
	Term     time.Time `json:"term"`
	Sequence int64     `json:"sequence"`
	Type     string    `json:"type"`
	Object   struct {
		Name string `json:"name"`
	} `json:"object"`
	Address netip.Addr `json:"address"`
	From    string     `json:"from"`
	To      string     `json:"to"`
	Pod     struct {
		Name string `json:"name"`
	} `json:"pod"`
}

// records returns the whole audit log.
func (h *historyTest) records(t *testing.T) (all []auditRecord) {
	t.Helper()
	log, err := h.Kin.Exec(t.Context(), lab.ControlPlane, "cat", auditLog)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log) {
		var r auditRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, r)
	}
	return all
}

// terms returns how many times a master has become leader.
func (h *historyTest) terms(t *testing.T) (n int) {
	t.Helper()
	for _, r := range h.records(t) {
		if r.Type == "Started" {
			n++
		}
	}
	return n
}

// recordedOnce checks that each change is in the log exactly once, that no record is missing, and
// that each leader recorded what it found at most once.
func (h *historyTest) recordedOnce(t *testing.T) {
	changes, found := map[netip.Addr][]string{}, map[string]bool{}
	var before auditRecord
	for _, r := range h.records(t) {
		next := int64(1)
		if r.Leader == before.Leader && r.Term.Equal(before.Term) {
			next = before.Sequence + 1
		}
		if r.Sequence != next {
			t.Errorf("record %d of the term of %s, want %d", r.Sequence, r.Term, next)
		}
		before = r
		switch {
		case r.Object.Name != historyName:
		case r.Type == "Found":
			key := fmt.Sprintln(r.Term, r.Address, r.Pod.Name)
			if found[key] {
				t.Errorf("found twice: %+v", r)
			}
			found[key] = true
		default:
			changes[r.Address] = append(changes[r.Address], strings.Join([]string{r.Type, r.Pod.Name, r.From, r.To}, ","))
		}
	}
	// Writes to the database and to the API server may be recorded in any order.
	want := []string{
		"Assigned,,,ovn-worker", "Assigned,,ovn-worker,ovn-worker2", "Assigned,,ovn-worker2,ovn-worker",
		"PodAdded," + h.pod.Name + ",,", "PodRemoved," + h.pod.Name + ",,", "Released,,ovn-worker,",
	}
	for _, a := range h.ips {
		if have := slices.Sorted(slices.Values(changes[a])); !slices.Equal(have, want) {
			t.Errorf("changes of %s recorded:\n%s\nwant, in some order:\n%s", a, strings.Join(changes[a], "\n"), strings.Join(want, "\n"))
		}
		delete(changes, a)
	}
	if len(changes) > 0 {
		t.Errorf("changes of other addresses: %v", changes)
	}
}
