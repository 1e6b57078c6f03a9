package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// TestOptions tests ovnkube with options that the other clusters do not have. They are independent
// of each other, so one cluster has them all.
func TestOptions(t *testing.T) {
	s := start(t, "shared", func(o *lab.Options) {
		o.Name = fmt.Sprintf("e2e-options-%d", os.Getpid())
		o.Config += "ovnkube:\n  args: [--disable-snat-multiple-gws, --egressip-node-healthcheck-port=9107, --exgw-interface=" + secondDevice + "]\n" +
			"  masterArgs: [--egress-audit-log=" + auditLog + "]\n"
	})
	t.Run("Untranslated", s.untranslated)
	t.Run("SecondUplink", func(t *testing.T) { newGatewayTest(t, s).secondUplink(t, true) })
	t.Run("ReplacedUplink", s.replacedUplink)
	s.full(t, "HealthService", s.healthService)
	t.Run("History", s.history)
}

// replacedUplink takes the second uplink of a node away, as when another card takes its place: the
// condition of the node and an Event name it for as long as it is missing, and the network that the
// node has through its first uplink stays as it is.
func (s *suite) replacedUplink(t *testing.T) {
	const node, other = "ovn-worker2", "replaced"
	before := s.steadyState(t)
	rename := func(ctx context.Context, from, to string) error {
		_, err := s.Kin.Exec(ctx, node, "sh", "-c", fmt.Sprintf("ip link set %s down && ip link set %s name %s && ip link set %s up", from, from, to, to))
		return err
	}
	if err := rename(t.Context(), secondDevice, other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			_ = rename(context.WithoutCancel(t.Context()), other, secondDevice)
		}
	})
	s.networkUnavailable(t, node, corev1.ConditionTrue, "NetworkFailing", "uplink "+secondDevice)
	s.nodeEvent(t, node, "uplink "+secondDevice)
	if _, err := s.RunServer(t.Context(), "replaced-uplink", "ovn-worker", nil); err != nil {
		t.Errorf("a pod on another node: %v", err)
	}
	if err := s.DeletePod(t.Context(), "replaced-uplink"); err != nil {
		t.Error(err)
	}
	if err := rename(t.Context(), other, secondDevice); err != nil {
		t.Fatal(err)
	}
	s.networkUnavailable(t, node, corev1.ConditionFalse, "NetworkReady", "")
	s.sameState(t, before)
}

// networkUnavailable waits until a condition of a node has a status and a reason, and text in its message.
func (s *suite) networkUnavailable(t *testing.T, node string, status corev1.ConditionStatus, reason, text string) {
	t.Helper()
	begun := time.Now()
	err := lab.Until(t.Context(), 2*time.Minute, fmt.Sprintf("%s to be NetworkUnavailable %s %s", node, status, reason), func(ctx context.Context) error {
		n, err := s.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeNetworkUnavailable {
				if c.Status == status && c.Reason == reason && strings.Contains(c.Message, text) {
					return nil
				}
				return fmt.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
			}
		}
		return errors.New("it has no such condition")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("NetworkUnavailable %s after %v", status, time.Since(begun).Round(100*time.Millisecond))
}
