package suite

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const answersName = "answers"

var answersIPs = addresses("172.18.0.245", "fc00:f853:ccd:e793::245")

// asks runs "ovnkube egress" until it exits with a status and its output contains all of the given
// texts.
func (s *suite) asks(t *testing.T, kubeconfig string, status int, says []string, args ...string) {
	t.Helper()
	args = append(append([]string{"egress"}, args...), "--kubeconfig", kubeconfig)
	err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("%q to answer", args), func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(s.Kin.Program), "ovnkube"), args...).CombinedOutput()
		is := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			is, err = exit.ExitCode(), nil
		}
		missing := func(word string) bool { return !strings.Contains(string(out), word) }
		if err == nil && (is != status || slices.ContainsFunc(says, missing)) {
			err = fmt.Errorf("exit status %d, want %d and %q: %s", is, status, says, out)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// answers asks about an EgressIP that is in place: as a user who may read the objects, as one who
// may not, and while no master runs.
func (e *egressIPTest) answers(t *testing.T) {
	e.assignable(t, "ovn-worker")
	e.choose(t, answersName, "egress-0")
	e.create(t, answersName, answersIPs)
	e.programmed(t, answersName)
	pod := []string{"explain", "pod", lab.Namespace + "/egress-0"}
	for _, ask := range []struct{ args, says []string }{
		{pod, []string{"decided by EgressIP/" + answersName, answersIPs[0].String(), answersIPs[1].String()}},
		{[]string{"explain", "egressip", answersName}, []string{"on node ovn-worker, programmed"}},
		{[]string{"explain", "address", answersIPs[1].String()}, []string{"EgressIP/" + answersName}},
		{[]string{"explain", "node", "ovn-worker"}, []string{answersIPs[0].String(), answersIPs[1].String()}},
		{[]string{"status"}, []string{"ovn-worker2", "Programmed True"}},
		{[]string{"what-if", "--delete", "egressip/" + answersName}, []string{"egress-0"}},
	} {
		e.asks(t, e.Kubeconfig, 0, ask.says, ask.args...)
	}
	e.asks(t, e.stranger(t), 2, []string{"forbidden", `"nodes"`}, pod...)
	e.asks(t, e.Kubeconfig, 2, []string{"nobody: not found"}, "explain", "pod", lab.Namespace+"/nobody")

	if err := e.Service(t.Context(), "stop", lab.ControlPlane, "ovnkube-master"); err != nil {
		t.Fatal(err)
	}
	e.renewed(t, time.Now().Add(-5*time.Minute))
	e.asks(t, e.Kubeconfig, 1, []string{"decided by EgressIP/" + answersName, answersIPs[0].String(), "MasterSilent"}, pod...)
	e.asks(t, e.Kubeconfig, 1, []string{"MasterSilent", "Programmed True"}, "status")
	if err := e.Service(t.Context(), "start", lab.ControlPlane, "ovnkube-master"); err != nil {
		t.Fatal(err)
	}
	e.asks(t, e.Kubeconfig, 0, []string{"decided by EgressIP/" + answersName}, pod...)
	e.remove(t, answersName)
	e.choose(t, answersName)
}

// renewed sets the renew time of the masters' Lease.
func (s *suite) renewed(t *testing.T, at time.Time) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, at.UTC().Format(metav1.RFC3339Micro))
	_, err := s.Kube.CoordinationV1().Leases(ovnkubeAccounts).Patch(t.Context(), "ovn-kubernetes-master", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// stranger returns the kubeconfig of an account without any permissions.
func (s *suite) stranger(t *testing.T) string {
	t.Helper()
	token, err := s.Kube.CoreV1().ServiceAccounts(lab.Namespace).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s.kubeconfigWith(t, token.Status.Token)
}
