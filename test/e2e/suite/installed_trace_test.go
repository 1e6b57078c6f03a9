package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const traceName = "trace"

var traceIPs = addresses("172.18.0.211", "fc00:f853:ccd:e793::211")

// traced is what the test reads of the answers of "ovnkube egress trace"; docs/trace.md has the
// whole schema.
type traced struct {
	InPlace bool `json:"inPlace"`
	Paths   []struct {
		End      string     `json:"end"`
		Node     string     `json:"node"`
		Source   netip.Addr `json:"source"`
		Problems []struct {
			Object  string `json:"object"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"problems"`
	} `json:"paths"`
}

// trace follows packets of a pod, and compares what is foretold with what is seen outside: where
// nothing selects the pod, with an EgressIP, with a row that somebody removed, and for somebody
// without rights. The API server leads to pods only, so ovnkube has to run in some.
func (s *suite) trace(t *testing.T) {
	e := s.egressIPOf(t, s.servers["a"])
	user := e.user(t)
	e.refusesTrace(t, user, "egress-tracer") // the role is not bound yet
	e.bind(t, user)
	e.assignable(t, "ovn-worker2")
	pod, outside := s.servers["a"], e.OfFamilies(lab.OutsideAddresses)
	for _, to := range outside {
		e.tracesTo(t, user, pod, to)
	}
	e.choose(t, traceName, pod.Name)
	e.create(t, traceName, e.OfFamilies(traceIPs))
	e.programmed(t, traceName)
	for _, to := range outside {
		want := lab.OfFamily(traceIPs, to.Is4())
		e.leaves(t, pod.Name, to, want)
		if source := e.tracesTo(t, user, pod, to); source != want {
			t.Errorf("the trace says %s", source)
		}
	}
	e.traceWithoutRow(t, user, pod, outside[0])
	e.remove(t, traceName)
	e.choose(t, traceName)
	e.assignable(t)
}

// user returns the kubeconfig of somebody with the role egress-reader only.
func (e *egressIPTest) user(t *testing.T) string {
	t.Helper()
	manifest := filepath.Join("..", "..", "..", "dist", "base", "egress-reader.yaml")
	if out, err := exec.CommandContext(t.Context(), e.Kin.Kubectl(), "--kubeconfig", e.Kubeconfig, "apply", "-f", manifest).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	accounts := e.Kube.CoreV1().ServiceAccounts(lab.Namespace)
	account, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tracer"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "e2e-tracer"}, Subjects: e.subjects(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "egress-reader"}}
	if _, err := e.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(e.Kube.RbacV1().ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}),
			accounts.Delete(ctx, account.Name, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	token, err := accounts.CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return e.kubeconfigWith(t, token.Status.Token)
}

// kubeconfigWith returns the kubeconfig of who has a token.
func (s *suite) kubeconfigWith(t *testing.T, token string) string {
	t.Helper()
	config := rest.AnonymousClientConfig(s.RESTConfig())
	file := filepath.Join(t.TempDir(), "tracer.conf")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "c",
	}, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (e *egressIPTest) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: lab.Namespace, Name: "tracer"}}
}

// bind gives the user the role egress-tracer.
func (e *egressIPTest) bind(t *testing.T, user string) {
	t.Helper()
	bindings := e.Kube.RbacV1().RoleBindings(ovnkubeAccounts)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "e2e-tracer"}, Subjects: e.subjects(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "egress-tracer"}}
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// The API server's authorizer reads bindings from a watch.
	e.traceUntil(t, user, e.servers["a"], e.OfFamilies(lab.OutsideAddresses)[0], func(status int, _ traced, said string) error {
		if status == 2 {
			return errors.New(said)
		}
		return nil
	})
}

// runTrace runs the command as a user, and returns its exit status and what it says.
func (e *egressIPTest) runTrace(ctx context.Context, user string, pod lab.Pod, to netip.Addr) (int, traced, string, error) {
	program := filepath.Join(filepath.Dir(e.Kin.Program), "ovnkube")
	args := []string{"egress", "trace", lab.Namespace + "/" + pod.Name, "--to", netip.AddrPortFrom(to, lab.ServePort).String(), "-o", "json", "--kubeconfig", user}
	out, err := exec.CommandContext(ctx, program, args...).Output()
	said, code := string(out), 0
	var status *exec.ExitError
	if errors.As(err, &status) {
		said, code, err = said+string(status.Stderr), status.ExitCode(), nil
	}
	var answer traced
	if err == nil && code != 2 {
		err = json.Unmarshal(out, &answer)
	}
	return code, answer, said, err
}

// traceUntil runs the command until its answer is accepted.
func (e *egressIPTest) traceUntil(t *testing.T, user string, pod lab.Pod, to netip.Addr, will func(int, traced, string) error) traced {
	t.Helper()
	var answer traced
	err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("the trace from %s to %s", pod.Name, to), func(ctx context.Context) error {
		status, now, said, err := e.runTrace(ctx, user, pod, to)
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		answer = now
		if err := will(status, now, said); err != nil {
			return fmt.Errorf("exit status %d, %w: %s", status, err, said)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return answer
}

// tracesTo compares a trace that is as planned with what the outside sees, and returns the
// source.
func (e *egressIPTest) tracesTo(t *testing.T, user string, pod lab.Pod, to netip.Addr) netip.Addr {
	t.Helper()
	// Somebody has to have sent before OVN knows the hardware address of the next hop.
	seen, err := e.SeenFromPod(t.Context(), pod.Name, to)
	if err != nil {
		t.Fatal(err)
	}
	answer := e.traceUntil(t, user, pod, to, func(status int, a traced, _ string) error {
		if status != 0 || !a.InPlace || len(a.Paths) != 1 || a.Paths[0].End != "Leaves" {
			return errors.New("not as planned")
		}
		if a.Paths[0].Source != seen {
			return fmt.Errorf("the outside sees %s", seen)
		}
		return nil
	})
	if len(answer.Paths) == 0 {
		return netip.Addr{}
	}
	return answer.Paths[0].Source
}

// refusesTrace wants a message that names the role that is missing.
func (e *egressIPTest) refusesTrace(t *testing.T, user, role string) {
	t.Helper()
	e.traceUntil(t, user, e.servers["a"], e.OfFamilies(lab.OutsideAddresses)[0], func(status int, _ traced, said string) error {
		if status != 2 || !strings.Contains(said, "you may not trace; a binding of the role "+role) {
			return errors.New("not refused for the missing role")
		}
		return nil
	})
}

// traceWithoutRow removes a policy behind the back of a master that does not run.
func (e *egressIPTest) traceWithoutRow(t *testing.T, user string, pod lab.Pod, to netip.Addr) {
	e.scaleMaster(t, 0)
	match := fmt.Sprintf("ip%d.src == %s", map[bool]int{true: 4, false: 6}[to.Is4()], pod.Address(to.Is4()))
	if _, err := e.Kin.Exec(t.Context(), lab.ControlPlane, "ovn-nbctl", "--wait=sb", "lr-policy-del", "ovn_cluster_router", "100", match); err != nil {
		t.Error(err)
	}
	e.traceUntil(t, user, pod, to, func(status int, a traced, _ string) error {
		if status != 1 || len(a.Paths) != 1 {
			return errors.New("want a trace that is not in place")
		}
		for _, p := range a.Paths[0].Problems {
			if p.Reason == "Missing" && p.Object == "EgressIP/"+traceName && strings.Contains(p.Message, match) {
				return nil
			}
		}
		return errors.New("the row is not named")
	})
	e.scaleMaster(t, 1)
	e.leaves(t, pod.Name, to, lab.OfFamily(traceIPs, to.Is4())) // the master has written it again
	e.tracesTo(t, user, pod, to)
}

// scaleMaster waits until there are so many pods of the master.
func (e *egressIPTest) scaleMaster(t *testing.T, replicas int) {
	t.Helper()
	kubectl := append(e.Kubectl(), "--namespace=ovn-kubernetes")
	if _, err := lab.Run(t.Context(), append(kubectl, "scale", "deployment/ovnkube-master", fmt.Sprintf("--replicas=%d", replicas))...); err != nil {
		t.Fatal(err)
	}
	err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("%d pods of the master", replicas), func(ctx context.Context) error {
		out, err := lab.Run(ctx, append(kubectl, "get", "pods", "--selector=app=ovnkube-master", "--output=name")...)
		if lines := strings.Count(out, "\n"); err == nil && lines != replicas {
			err = errors.New(out)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
