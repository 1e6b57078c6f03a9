package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/lab/labtest"
)

// powerFailure cuts a node's power and restores it: everything must then be as before, including
// its pods. Meanwhile "ovnkube egress" must say what the outage means. In a full run the node stays
// off until Kubernetes considers it not ready, which takes forty seconds.
func (s *suite) powerFailure(t *testing.T) {
	const node = "ovn-worker2"
	before := s.steadyState(t)
	e := s.heldBy(t, node)
	if err := s.Kin.Node(t.Context(), "kill", node); err != nil {
		t.Fatal(err)
	}
	s.probed(t, node, "Unreachable")
	e.explainsDead(t, node)
	notReady := func(t *testing.T) {
		err := lab.Until(t.Context(), 2*time.Minute, node+" to be not ready", func(ctx context.Context) error {
			all, err := s.Nodes(ctx)
			if err == nil && all[node].Ready {
				return fmt.Errorf("it is ready")
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if labtest.Full() {
		t.Run("NotReady", notReady)
	}
	s.powerOn(t, node)
	s.probed(t, node, "Reachable")
	e.forgets(t)
	s.sameState(t, before)
	t.Run("Connectivity", s.connectivity)
}

// probed waits until "ovnkube egress status" reports the given probe result for a node and, for
// probes that are answered, the latency.
func (s *suite) probed(t *testing.T, node, state string) {
	t.Helper()
	err := lab.Until(t.Context(), 30*time.Second, fmt.Sprintf("the status to say that %s is %s", node, state), func(ctx context.Context) error {
		out, err := s.egressStatus(ctx)
		if err != nil && !errors.Is(err, errNotInPlace) {
			return err
		}
		var answer struct {
			Nodes []struct {
				Node         string `json:"node"`
				Reachability struct {
					State               string `json:"state"`
					LatencyMilliseconds int64  `json:"latencyMilliseconds"`
				} `json:"reachability"`
			} `json:"nodes"`
		}
		if err := json.Unmarshal(out, &answer); err != nil {
			return err
		}
		for _, n := range answer.Nodes {
			want := "Reachable"
			if n.Node == node {
				want = state
			}
			if r := n.Reachability; r.State != want || (r.LatencyMilliseconds > 0) != (want == "Reachable") {
				return fmt.Errorf("%s is %+v, want %s", n.Node, r, want)
			}
		}
		if len(answer.Nodes) != len(nodes) {
			return fmt.Errorf("%d nodes: %s", len(answer.Nodes), out)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// errNotInPlace means that "ovnkube egress status" exited because not everything is as planned.
var errNotInPlace = errors.New("not all is in place")

// egressStatus returns the JSON output of "ovnkube egress status".
func (s *suite) egressStatus(ctx context.Context) ([]byte, error) {
	program := filepath.Join(filepath.Dir(s.Kin.Program), "ovnkube")
	out, err := exec.CommandContext(ctx, program, "egress", "status", "-o", "json", "--kubeconfig", s.Kubeconfig).Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return out, errNotInPlace
	case exit != nil:
		return nil, fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return out, err
}

// rejoin starts a node and waits until it can have egress addresses again.
func (s *suite) rejoin(t *testing.T, node string) {
	t.Helper()
	s.powerOn(t, node)
	s.candidate(t, node)
}

// powerOn starts a node and waits for it and its pods.
func (s *suite) powerOn(t *testing.T, node string) {
	t.Helper()
	on := time.Now()
	if err := s.Kin.Node(t.Context(), "start", node); err != nil {
		t.Fatal(err)
	}
	s.boots(t, node, on)
}

// boots waits for a node that was started at the given time, and for its pods. Until its kubelet has
// reported, the node may look ready as it was before.
func (s *suite) boots(t *testing.T, node string, on time.Time) {
	t.Helper()
	id, err := s.Kin.Exec(t.Context(), node, "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	err = lab.Until(t.Context(), 2*time.Minute, node+" to report that it is ready", func(ctx context.Context) error {
		n, err := s.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n.Status.NodeInfo.BootID != strings.TrimSpace(id) {
			return fmt.Errorf("it has reported boot %s, not %s", n.Status.NodeInfo.BootID, strings.TrimSpace(id))
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("Ready is %s since %s: %s", c.Status, c.LastTransitionTime, c.Message)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for name, was := range s.servers {
		if was.Node != node {
			continue
		}
		is, err := s.WaitPodSince(t.Context(), lab.Namespace, name, on, 2*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		s.servers[name] = is
	}
}
