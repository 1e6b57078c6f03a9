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

// traced has the fields of the answers of "ovnkube egress trace" that the test reads; docs/trace.md
// has the whole schema.
type traced struct {
	InPlace bool `json:"inPlace"`
	Paths   []struct {
		End       string          `json:"end"`
		Node      string          `json:"node"`
		Source    netip.Addr      `json:"source"`
		AsPlanned bool            `json:"asPlanned"`
		Problems  []tracedProblem `json:"problems"`
	} `json:"paths"`
	Probe *struct {
		Outcome string `json:"outcome"`
		Seen    []struct {
			Node   string     `json:"node"`
			Left   bool       `json:"left"`
			Source netip.Addr `json:"source"`
		} `json:"seen"`
		AsPlanned bool            `json:"asPlanned"`
		Problems  []tracedProblem `json:"problems"`
	} `json:"probe"`
}

type tracedProblem struct {
	Object  string `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// reasons returns the reasons of the problems of an object.
func reasons(problems []tracedProblem, object string) []string {
	var out []string
	for _, p := range problems {
		if p.Object == object {
			out = append(out, p.Reason)
		}
	}
	return out
}

// trace does the same as installedTrace in another gateway mode, and stops the master and the
// ovnkube of a node. It also tests UDP and a port on which nothing listens.
func (s *suite) trace(t *testing.T) {
	e := s.egressIPOf(t, s.servers["a"])
	e.traceEndpoint(t)
	user := e.user(t)
	e.bind(t, "egress-tracer")
	e.bind(t, "egress-prober")
	e.assignable(t, "ovn-worker2")
	pod, outside := s.servers["a"], e.OfFamilies(lab.OutsideAddresses)
	for _, to := range outside {
		e.tracesTo(t, user, pod, to)
	}
	e.tracesTo(t, user, pod, outside[0], "--protocol", "udp")
	e.choose(t, traceName, pod.Name)
	e.create(t, traceName, e.OfFamilies(traceIPs))
	e.programmed(t, traceName)
	e.stopped(t, lab.ControlPlane, "ovnkube-master", func() {
		for _, to := range outside {
			if source, want := e.tracesTo(t, user, pod, to), lab.OfFamily(traceIPs, to.Is4()); source != want {
				t.Errorf("the trace says %s, want %s", source, want)
			}
		}
	})
	e.stopped(t, pod.Node, "ovnkube-node", func() {
		e.traceUntil(t, user, pod, outside[0], []string{"--probe"}, func(status int, a traced, _ string) error {
			if status != 1 || len(a.Paths) != 1 || a.Paths[0].End != "Unknown" || !slices.Contains(reasons(a.Paths[0].Problems, "Node/"+pod.Node), "NodeSilent") {
				return errors.New("the node is not said to be silent")
			}
			if a.Probe == nil || a.Probe.Outcome != "" || !slices.Contains(reasons(a.Probe.Problems, "Node/"+pod.Node), "NodeSilent") {
				return errors.New("the probe is not said not to be known")
			}
			return nil
		})
	})
	e.tracesTo(t, user, pod, outside[0])
	e.remove(t, traceName)
	e.choose(t, traceName)
	e.assignable(t)
	e.forgotten(t, traceIPs) // so that later tests do not see them in the states that they compare
}

// traceEndpoint lets the API server connect to the ovnkube of a node, which it does only for pods:
// it creates a pod on the host network for this.
func (e *egressIPTest) traceEndpoint(t *testing.T) {
	t.Helper()
	pod := lab.ServerPod("trace", lab.ControlPlane, map[string]string{"app": "ovnkube-node"})
	pod.Namespace, pod.Spec.HostNetwork = ovnkubeAccounts, true
	pod.Spec.Containers[0].Args = []string{"serve", "-port", "18080"}
	pods := e.Kube.CoreV1().Pods(ovnkubeAccounts)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pods.Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// stopped does something while a daemon on a node is not running.
func (e *egressIPTest) stopped(t *testing.T, node, daemon string, do func()) {
	t.Helper()
	if err := e.Service(t.Context(), "stop", node, daemon); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Service(context.WithoutCancel(t.Context()), "start", node, daemon); err != nil {
			t.Error(err)
		}
	}()
	do()
}

// user returns the kubeconfig of a user who has only the role egress-reader.
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

// kubeconfigWith returns a kubeconfig with a token.
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

// bind binds a role to the user.
func (e *egressIPTest) bind(t *testing.T, role string) {
	t.Helper()
	bindings := e.Kube.RbacV1().RoleBindings(ovnkubeAccounts)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "e2e-" + role}, Subjects: e.subjects(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}}
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// runTrace runs the command as a user, and returns its exit status, its answer and its output.
func (e *egressIPTest) runTrace(ctx context.Context, user string, pod lab.Pod, to netip.Addr, more []string) (int, traced, string, error) {
	program := filepath.Join(filepath.Dir(e.Kin.Program), "ovnkube")
	args := []string{"egress", "trace", lab.Namespace + "/" + pod.Name, "--to", netip.AddrPortFrom(to, lab.ServePort).String(), "-o", "json", "--kubeconfig", user}
	out, err := exec.CommandContext(ctx, program, append(args, more...)...).Output()
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

// traceUntil runs the command until will accepts the answer.
func (e *egressIPTest) traceUntil(t *testing.T, user string, pod lab.Pod, to netip.Addr, more []string, will func(int, traced, string) error) traced {
	t.Helper()
	var answer traced
	err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("the trace from %s to %s", pod.Name, to), func(ctx context.Context) error {
		status, now, said, err := e.runTrace(ctx, user, pod, to, more)
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

// tracesTo compares a trace with a probe, both of which must be as planned, with what is seen
// outside, and returns the source address.
func (e *egressIPTest) tracesTo(t *testing.T, user string, pod lab.Pod, to netip.Addr, more ...string) netip.Addr {
	t.Helper()
	// OVN learns the MAC address of the next hop only when something is sent.
	seen, err := e.SeenFromPod(t.Context(), pod.Name, to)
	if err != nil {
		t.Fatal(err)
	}
	e.probesAs(t, user, pod, to, seen, more...)
	return seen
}

// probesAs checks that a trace and a probe are as planned and have the source address that was seen
// outside.
func (e *egressIPTest) probesAs(t *testing.T, user string, pod lab.Pod, to, seen netip.Addr, more ...string) {
	t.Helper()
	e.traceUntil(t, user, pod, to, append(more, "--probe"), func(_ int, a traced, _ string) error {
		if len(a.Paths) != 1 || a.Paths[0].End != "Leaves" || !a.Paths[0].AsPlanned {
			return errors.New("not as planned")
		}
		if a.Paths[0].Source != seen {
			return fmt.Errorf("the outside sees %s", seen)
		}
		if a.Probe == nil || a.Probe.Outcome != "Connected" && a.Probe.Outcome != "Answered" || !a.Probe.AsPlanned {
			return errors.New("the probe is not as planned")
		}
		for _, n := range a.Probe.Seen {
			if n.Left && n.Source == seen && n.Node == a.Paths[0].Node {
				return nil
			}
		}
		return fmt.Errorf("the probe is not seen to leave with %s", seen)
	})
}

// refusesTrace checks that the command fails with a message that names the missing role.
func (e *egressIPTest) refusesTrace(t *testing.T, user, verb, role string, more ...string) {
	t.Helper()
	e.traceUntil(t, user, e.servers["a"], e.OfFamilies(lab.OutsideAddresses)[0], more, func(status int, _ traced, said string) error {
		if status != 2 || !strings.Contains(said, "you may not "+verb+"; a binding of the role "+role) {
			return errors.New("not refused for the missing role")
		}
		return nil
	})
}
