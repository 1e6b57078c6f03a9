package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

const (
	// Namespace is where the lab's pods live.
	Namespace = "default"
	// ServePort is where every probe answers HTTP.
	ServePort = 8080
	// EchoPort is where it echoes bytes.
	EchoPort = ServePort + 1

	reportPort = 9000
)

// Pod is a running pod.
type Pod struct {
	Name, Node string
	// Addresses are the pod's, IPv4 first.
	Addresses []netip.Addr
}

// Address returns the pod's address of a family.
func (p Pod) Address(is4 bool) netip.Addr { return ofFamily(p.Addresses, is4) }

func ofFamily(addresses []netip.Addr, is4 bool) netip.Addr {
	for _, a := range addresses {
		if a.Is4() == is4 {
			return a
		}
	}
	return netip.Addr{}
}

// RunServer starts a pod that answers on ServePort, on the given node.
func (l *Lab) RunServer(ctx context.Context, name, node string, labels map[string]string) (Pod, error) {
	return l.runPod(ctx, name, node, labels, "serve", "-port", fmt.Sprint(ServePort))
}

// RunStream starts a pod that keeps one connection to an echo server busy.
func (l *Lab) RunStream(ctx context.Context, name, node string, to netip.Addr) (Pod, error) {
	return l.runPod(ctx, name, node, nil, "stream", "-port", fmt.Sprint(reportPort),
		"-to", netip.AddrPortFrom(to, EchoPort).String())
}

// RunSender starts a pod that sends datagrams to a port of each address, for ever.
// It begins a while after its start: a container runs before its pod is known to
// be an endpoint of any service.
func (l *Lab) RunSender(ctx context.Context, name, node string, labels map[string]string, to []netip.Addr, port uint16) (Pod, error) {
	targets := make([]string, len(to))
	for i, a := range to {
		targets[i] = netip.AddrPortFrom(a, port).String()
	}
	return l.runPod(ctx, name, node, labels, "send", "-after", "5s", "-to", strings.Join(targets, ","))
}

func (l *Lab) runPod(ctx context.Context, name, node string, labels map[string]string, args ...string) (Pod, error) {
	var grace int64
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: labels},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: node},
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "probe", Image: ProbeImage, ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
			}},
		},
	}
	if _, err := l.Kube.CoreV1().Pods(Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return Pod{}, fmt.Errorf("create pod: %w", err)
	}
	return l.WaitPod(ctx, name, time.Minute)
}

// WaitPod waits until a pod is ready and has its addresses.
func (l *Lab) WaitPod(ctx context.Context, name string, limit time.Duration) (Pod, error) {
	var found Pod
	err := Until(ctx, limit, "pod "+name+" to be ready", func(ctx context.Context) error {
		p, err := l.Kube.CoreV1().Pods(Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if !ready {
			return fmt.Errorf("phase %s: %s", p.Status.Phase, waitingFor(p))
		}
		found, err = podOf(p)
		return err
	})
	return found, err
}

func podOf(p *corev1.Pod) (Pod, error) {
	pod := Pod{Name: p.Name, Node: p.Spec.NodeName}
	for _, ip := range p.Status.PodIPs {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return pod, fmt.Errorf("address of pod %s: %w", p.Name, err)
		}
		pod.Addresses = append(pod.Addresses, a)
	}
	slices.SortFunc(pod.Addresses, netip.Addr.Compare)
	return pod, nil
}

// waitingFor tells what a pod that is not ready says about itself.
func waitingFor(p *corev1.Pod) string {
	var said []string
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			said = append(said, c.Message)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			said = append(said, c.State.Waiting.Reason+" "+c.State.Waiting.Message)
		}
	}
	return strings.Join(said, "; ")
}

// DeletePod deletes a pod and waits until it is gone.
func (l *Lab) DeletePod(ctx context.Context, name string) error {
	pods := l.Kube.CoreV1().Pods(Namespace)
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod: %w", err)
	}
	return Until(ctx, time.Minute, "pod "+name+" to be gone", func(ctx context.Context) error {
		switch _, err := pods.Get(ctx, name, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("it is still there")
	})
}

// Exec runs a command in a pod and returns what it printed, without the last newline.
func (l *Lab) Exec(ctx context.Context, pod string, command ...string) (string, error) {
	req := l.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(Namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(l.rest, "GET", req.URL().String())
	if err != nil {
		return "", fmt.Errorf("exec in pod %s: %w", pod, err)
	}
	var stdout, stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}); err != nil {
		return "", fmt.Errorf("exec %q in pod %s: %w: %s", command, pod, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

// URL is where a probe at addr answers path.
func URL(addr netip.Addr, path string) string {
	return "http://" + netip.AddrPortFrom(addr, ServePort).String() + path
}

// SeenFromPod makes a pod open a connection to a probe and returns the source
// address that the probe saw.
func (l *Lab) SeenFromPod(ctx context.Context, pod string, to netip.Addr) (netip.Addr, error) {
	out, err := l.Exec(ctx, pod, "/probe", "get", URL(to, "/clientip"))
	return parseSeen(out, err)
}

// SeenFromMachine is SeenFromPod from a node or an outside host.
func (l *Lab) SeenFromMachine(ctx context.Context, machine string, to netip.Addr) (netip.Addr, error) {
	out, err := l.Kin.Exec(ctx, machine, machineProbe, "get", URL(to, "/clientip"))
	return parseSeen(out, err)
}

// Call runs the probe with args in a pod, or on a machine that serves, and returns
// what it printed.
func (l *Lab) Call(ctx context.Context, from string, pod bool, args ...string) (string, error) {
	if pod {
		return l.Exec(ctx, from, append([]string{"/probe"}, args...)...)
	}
	out, err := l.Kin.Exec(ctx, from, append([]string{machineProbe}, args...)...)
	return strings.TrimSpace(out), err
}

// Get fetches a URL on a machine that serves; any answer but success is an error.
func (l *Lab) Get(ctx context.Context, machine, url string) error {
	_, err := l.Kin.Exec(ctx, machine, machineProbe, "get", url)
	return err
}

func parseSeen(out string, err error) (netip.Addr, error) {
	if err != nil {
		return netip.Addr{}, err
	}
	seen, err := netip.ParseAddr(strings.TrimSpace(out))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("answer of the probe: %w", err)
	}
	return seen, nil
}

// StreamReport is what a stream pod says about its connection.
type StreamReport struct {
	Echoed       int   `json:"echoed"`
	Reconnects   int   `json:"reconnects"`
	MaxGapMillis int64 `json:"maxGapMillis"`
}

// Report asks a stream pod how its connection fared since the last reset.
func (l *Lab) Report(ctx context.Context, pod string, reset bool) (StreamReport, error) {
	url := fmt.Sprintf("http://127.0.0.1:%d/report", reportPort)
	if reset {
		url += "?reset"
	}
	var r StreamReport
	out, err := l.Exec(ctx, pod, "/probe", "get", url)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return r, fmt.Errorf("report of pod %s: %w", pod, err)
	}
	return r, nil
}
