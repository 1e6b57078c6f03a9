package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/lab/labtest"
)

// powerFailure takes a node's power and gives it back: everything must be as before
// when it is back, its pods included. In a full run Kubernetes sees it go meanwhile, which
// takes forty seconds.
func (s *suite) powerFailure(t *testing.T) {
	const node = "ovn-worker2"
	before := s.steadyState(t)
	if err := s.Kin.Node(t.Context(), "kill", node); err != nil {
		t.Fatal(err)
	}
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
	s.sameState(t, before)
	t.Run("Connectivity", s.connectivity)
}

// powerOn starts a node and waits for it and for the pods on it.
func (s *suite) powerOn(t *testing.T, node string) {
	t.Helper()
	on := time.Now()
	if err := s.Kin.Node(t.Context(), "start", node); err != nil {
		t.Fatal(err)
	}
	err := lab.Until(t.Context(), 2*time.Minute, node+" to be ready", func(ctx context.Context) error {
		all, err := s.Nodes(ctx)
		if err == nil && !all[node].Ready {
			return fmt.Errorf("it is not")
		}
		return err
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
		is, err := s.WaitPodSince(t.Context(), name, on, 2*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		s.servers[name] = is
	}
}
