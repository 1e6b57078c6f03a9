package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const deadName = "dead"

var deadIPs = addresses("172.18.0.213", "fc00:f853:ccd:e793::213")

// explainedDead has the fields that the test reads of the answers about a node without power, and
// about a pod whose address that node held.
type explainedDead struct {
	AsOf             time.Time       `json:"asOf"`
	ReachabilityAsOf time.Time       `json:"reachabilityAsOf"`
	InPlace          bool            `json:"inPlace"`
	Problems         []tracedProblem `json:"problems"`
	Families         []struct {
		Outcome  string             `json:"outcome"`
		Sources  []explainedAddress `json:"sources"`
		Problems []tracedProblem    `json:"problems"`
	} `json:"families"`
	Reachability struct {
		State string    `json:"state"`
		Since time.Time `json:"since"`
	} `json:"reachability"`
}

// heldBy gives a pod on another node addresses that only the node which will lose power can hold.
func (s *suite) heldBy(t *testing.T, node string) *egressIPTest {
	t.Helper()
	e := s.egressIPOf(t, s.servers["a"])
	e.assignable(t, node)
	e.create(t, deadName, e.OfFamilies(deadIPs))
	e.choose(t, deadName, "a")
	e.programmed(t, deadName)
	return e
}

// explainsDead asks about the pod and the node while the node has no power: first while no other
// node can hold the addresses, then while one can.
func (e *egressIPTest) explainsDead(t *testing.T, node string) {
	pod := lab.Namespace + "/a"
	e.dead(t, 1, func(a explainedDead) error {
		for _, f := range a.Families {
			if !slices.ContainsFunc(f.Problems, func(p tracedProblem) bool { return strings.Contains(p.Message, node) }) {
				return fmt.Errorf("%s is not named", node)
			}
		}
		return nil
	}, "pod", pod)
	e.dead(t, 1, func(a explainedDead) error {
		if a.Reachability.State != "Unreachable" || a.Reachability.Since.IsZero() {
			return errors.New("it is not said to be dead, or not since when")
		}
		if !slices.ContainsFunc(a.Problems, func(p tracedProblem) bool {
			return p.Object == "Node/"+node && (p.Reason == "NodeUnreachable" || p.Reason == "NodeNotReady")
		}) {
			return errors.New("that is not said to be a problem")
		}
		return nil
	}, "node", node)
	e.assignable(t, "ovn-worker", node)
	e.programmed(t, deadName)
	e.dead(t, 0, func(a explainedDead) error {
		for i, f := range a.Families {
			want := map[netip.Addr]string{e.OfFamilies(deadIPs)[i]: "ovn-worker"}
			if err := same(f.Sources, want); err != nil {
				return err
			}
		}
		return nil
	}, "pod", pod)
	for _, to := range e.OfFamilies(lab.OutsideAddresses) {
		e.leaves(t, "a", to, lab.OfFamily(deadIPs, to.Is4()))
	}
}

// dead asks until the answer has the given exit status, says how old its facts are, and will
// accepts it.
func (e *egressIPTest) dead(t *testing.T, status int, will func(explainedDead) error, what ...string) {
	t.Helper()
	program := filepath.Join(filepath.Dir(e.Kin.Program), "ovnkube")
	args := append(append([]string{"egress", "explain"}, what...), "-o", "json", "--kubeconfig", e.Kubeconfig)
	err := lab.Until(t.Context(), 30*time.Second, fmt.Sprintf("%q to say so", what), func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, program, args...).Output()
		var exit *exec.ExitError
		code := 0
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			return err
		}
		var a explainedDead
		if err := json.Unmarshal(out, &a); err != nil {
			return fmt.Errorf("exit status %d: %w: %s", code, err, out)
		}
		if code != status || a.InPlace != (status == 0) || a.AsOf.IsZero() || a.ReachabilityAsOf.IsZero() || a.ReachabilityAsOf.After(a.AsOf.Add(time.Minute)) {
			return fmt.Errorf("exit status %d, want %d: %s", code, status, out)
		}
		if err := will(a); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// forgets takes the addresses away.
func (e *egressIPTest) forgets(t *testing.T) {
	t.Helper()
	e.remove(t, deadName)
	e.choose(t, deadName)
	e.assignable(t)
	e.forgotten(t, deadIPs)
}
