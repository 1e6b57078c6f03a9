package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// removal removes a node from the cluster: no row may remain of it. When it joins again, everything
// must be as before, except for the UUIDs of rows.
func (s *suite) removal(t *testing.T) {
	const node = "ovn-worker2"
	var moved []string
	for name, pod := range s.servers {
		if pod.Node != node {
			continue
		}
		if err := s.DeletePod(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		delete(s.servers, name)
		moved = append(moved, name)
	}
	before := s.steadyState(t).Anonymous()
	if err := s.Kin.Node(t.Context(), "stop", node); err != nil {
		t.Fatal(err)
	}
	if err := s.Kube.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	err := lab.Until(t.Context(), 30*time.Second, "the rows of "+node+" to be gone", func(ctx context.Context) error {
		state, err := s.State(ctx, lab.ControlPlane, "ovn-worker")
		if err != nil {
			return err
		}
		for place, text := range state {
			if strings.HasPrefix(place, "northbound ") && strings.Contains(text, node) {
				return fmt.Errorf("%s:\n%s", place, text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.powerOn(t, node)
	s.same(t, before, lab.State.Anonymous)
	for _, name := range moved {
		pod, err := s.RunServer(t.Context(), name, node, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.servers[name] = pod
	}
	t.Run("Connectivity", s.connectivity)
}
