package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

const (
	// Namespace is where the lab's pods live.
	Namespace = "default"
	// ServePort is the port on which every probe answers HTTP.
	ServePort = 8080
	// EchoPort is the port on which it echoes bytes.
	EchoPort = ServePort + 1

	reportPort = 9000
)

// Pod is a running pod.
type Pod struct {
	Namespace, Name, Node string
	// Addresses are the pod's addresses, IPv4 first.
	Addresses []netip.Addr
}

// Address returns the pod's address of a family.
func (p Pod) Address(is4 bool) netip.Addr { return OfFamily(p.Addresses, is4) }

// OfFamily returns the first address of a family, or the zero Addr if there is none.
func OfFamily(addresses []netip.Addr, is4 bool) netip.Addr {
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

// ServerPod returns the pod that RunServer creates, to be modified before it is created.
func ServerPod(name, node string, labels map[string]string) *corev1.Pod {
	return newPod(name, node, labels, "serve", "-port", fmt.Sprint(ServePort))
}

// RunHostPortServer is RunServer with a host port in addition, for TCP and UDP.
func (l *Lab) RunHostPortServer(ctx context.Context, name, node string, labels map[string]string, port uint16) (Pod, error) {
	pod := newPod(name, node, labels, "serve", "-port", fmt.Sprint(ServePort))
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{
			ContainerPort: ServePort, HostPort: int32(port), Protocol: p,
		})
	}
	if err := l.createPod(ctx, pod); err != nil {
		return Pod{}, err
	}
	return l.WaitPod(ctx, name, time.Minute)
}

// RunStream starts a pod that keeps one connection to an echo server busy.
func (l *Lab) RunStream(ctx context.Context, name, node string, to netip.Addr) (Pod, error) {
	return l.RunLabelledStream(ctx, name, node, nil, to)
}

// RunLabelledStream is RunStream for a pod with labels.
func (l *Lab) RunLabelledStream(ctx context.Context, name, node string, labels map[string]string, to netip.Addr) (Pod, error) {
	return l.RunSizedStream(ctx, name, node, labels, to, 8, 15*time.Second)
}

// RunSizedStream is RunLabelledStream for a pod that sends size bytes at a time, and a TCP
// keepalive after keepAlive without traffic.
func (l *Lab) RunSizedStream(ctx context.Context, name, node string, labels map[string]string, to netip.Addr, size int, keepAlive time.Duration) (Pod, error) {
	return l.runPod(ctx, name, node, labels, "stream", "-port", fmt.Sprint(reportPort),
		"-to", netip.AddrPortFrom(to, EchoPort).String(), "-size", fmt.Sprint(size), "-keepalive", keepAlive.String())
}

// RunStreams is RunLabelledStream for a pod that keeps several connections busy, each from one of
// the given ports. Its report has the messages of the connection that carried the fewest, the
// longest gap, and all reconnects.
//
// OVN gives a connection another source port if its own is in use with the egress address and the
// destination, by another pod or by a connection that the destination still remembers. Such a
// connection does not survive a move, so pods that must keep their connections get ports that no
// pod had before them.
func (l *Lab) RunStreams(ctx context.Context, name, node string, labels map[string]string, to netip.Addr, connections int, ports PortRange) (Pod, error) {
	pod := newPod(name, node, labels, "stream", "-port", fmt.Sprint(reportPort),
		"-to", netip.AddrPortFrom(to, EchoPort).String(), "-connections", fmt.Sprint(connections))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_local_port_range", Value: fmt.Sprintf("%d %d", ports.First, ports.Last)}},
	}
	if err := l.createPod(ctx, pod); err != nil {
		return Pod{}, err
	}
	return l.WaitPod(ctx, name, time.Minute)
}

// PortRange is the ports from First to Last.
type PortRange struct{ First, Last uint16 }

// Next returns the range of the same size that follows r.
func (r PortRange) Next() PortRange {
	return PortRange{First: r.Last + 1, Last: r.Last + 1 + r.Last - r.First}
}

// Sender is a pod that sends datagrams to a port of each address continuously, from the moment it
// starts.
type Sender struct {
	Name, Node string
	Labels     map[string]string
	To         []netip.Addr
	Port       uint16
	// Every is the interval between two rounds; 0 for the probe's default.
	Every time.Duration
	// NeverReady keeps the pod from becoming ready.
	NeverReady bool
}

// senderGrace is the termination grace period in seconds of pods that send on their own: without
// one, the pod is gone from the API while it still sends.
const senderGrace = 5

// StartSender starts a sender without waiting for it.
func (l *Lab) StartSender(ctx context.Context, s Sender) error {
	targets := make([]string, len(s.To))
	for i, a := range s.To {
		targets[i] = netip.AddrPortFrom(a, s.Port).String()
	}
	args := []string{"send", "-to", strings.Join(targets, ",")}
	if s.Every > 0 {
		args = append(args, "-every", s.Every.String())
	}
	pod := newPod(s.Name, s.Node, s.Labels, args...)
	*pod.Spec.TerminationGracePeriodSeconds = senderGrace
	if s.NeverReady {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/never"}}
	}
	return l.createPod(ctx, pod)
}

// GateReady is the readiness gate of the pods that StartSpeaker starts.
const GateReady corev1.PodConditionType = "example.com/ready"

// StartSpeaker starts a pod that serves on a port and sends from it to a port of each address. It
// is ready when GateReady is true, and takes a while to terminate.
func (l *Lab) StartSpeaker(ctx context.Context, name, node string, labels map[string]string, port uint16, to []netip.Addr, toPort uint16) error {
	targets := make([]string, len(to))
	for i, a := range to {
		targets[i] = netip.AddrPortFrom(a, toPort).String()
	}
	pod := newPod(name, node, labels, "speak", "-port", fmt.Sprint(port), "-to", strings.Join(targets, ","))
	*pod.Spec.TerminationGracePeriodSeconds = 25
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: GateReady}}
	return l.createPod(ctx, pod)
}

// SetReady sets GateReady of a pod that StartSpeaker started.
func (l *Lab) SetReady(ctx context.Context, name string, ready bool) error {
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, GateReady, status)
	_, err := l.Kube.CoreV1().Pods(Namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("set readiness of pod %s: %w", name, err)
	}
	return nil
}

func (l *Lab) runPod(ctx context.Context, name, node string, labels map[string]string, args ...string) (Pod, error) {
	if err := l.createPod(ctx, newPod(name, node, labels, args...)); err != nil {
		return Pod{}, err
	}
	return l.WaitPod(ctx, name, time.Minute)
}

func (l *Lab) createPod(ctx context.Context, pod *corev1.Pod) error {
	if _, err := l.Kube.CoreV1().Pods(Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	return nil
}

// newPod returns a pod that runs the probe on a node.
func newPod(name, node string, labels map[string]string, args ...string) *corev1.Pod {
	var grace int64
	return &corev1.Pod{
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
}

// WaitPod waits until a pod is ready and has addresses, and its probe serves.
func (l *Lab) WaitPod(ctx context.Context, name string, limit time.Duration) (Pod, error) {
	return l.WaitPodSince(ctx, Namespace, name, time.Time{}, limit)
}

// WaitPodSince is WaitPod for a pod whose containers started at the given time or later, to the
// second: for a node that comes back, the API server still has the state from before.
func (l *Lab) WaitPodSince(ctx context.Context, namespace, name string, since time.Time, limit time.Duration) (Pod, error) {
	var found Pod
	err := Until(ctx, limit, "pod "+name+" to be ready", func(ctx context.Context) error {
		p, err := l.Kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if !ready {
			return fmt.Errorf("phase %s: %s", p.Status.Phase, waitingFor(p))
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running == nil || c.State.Running.StartedAt.Time.Before(since.Truncate(time.Second)) {
				return fmt.Errorf("container %s has not started since %s", c.Name, since.Format(time.TimeOnly))
			}
		}
		if found, err = podOf(p); err != nil {
			return err
		}
		return l.serves(ctx, p)
	})
	return found, err
}

func podOf(p *corev1.Pod) (Pod, error) {
	pod := Pod{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName}
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

// waitingFor returns what the status of a pod says about why it is not ready.
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
	return l.deletePod(ctx, name, metav1.DeleteOptions{})
}

// EndPod is DeletePod for a pod that would take long to terminate, or is already terminating: it
// gets one more second.
func (l *Lab) EndPod(ctx context.Context, name string) error {
	return l.deletePod(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
}

func (l *Lab) deletePod(ctx context.Context, name string, options metav1.DeleteOptions) error {
	pods := l.Kube.CoreV1().Pods(Namespace)
	if err := pods.Delete(ctx, name, options); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod: %w", err)
	}
	return l.AwaitGone(ctx, name)
}

// AwaitGone waits until a pod is gone from the API.
func (l *Lab) AwaitGone(ctx context.Context, name string) error {
	pods := l.Kube.CoreV1().Pods(Namespace)
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

// Exec runs a command in a pod, as kubectl exec does, and returns its output without the last newline.
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
