package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/ask"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/kin"
)

// URL returns the URL at which a probe at addr answers path.
func URL(addr netip.Addr, path string) string {
	return "http://" + netip.AddrPortFrom(addr, ServePort).String() + path
}

// SeenFromPod has a pod open a connection to a probe and returns the source address that the probe
// saw.
func (l *Lab) SeenFromPod(ctx context.Context, pod string, to netip.Addr) (netip.Addr, error) {
	out, err := l.Call(ctx, pod, true, "get", URL(to, "/clientip"))
	return parseSeen(out, err)
}

// SourcesFromPod has a pod open connections to a probe one after the other, and returns how often
// the probe saw each source address.
func (l *Lab) SourcesFromPod(ctx context.Context, pod string, to netip.Addr, connections int) (map[netip.Addr]int, error) {
	out, err := l.Call(ctx, pod, true, "get", "-count", fmt.Sprint(connections), URL(to, "/clientip"))
	return parseSources(out, err)
}

// SourcesFromMachine is SourcesFromPod from a node or an outside host.
func (l *Lab) SourcesFromMachine(ctx context.Context, machine string, to netip.Addr, connections int) (map[netip.Addr]int, error) {
	out, err := l.Call(ctx, machine, false, "get", "-count", fmt.Sprint(connections), URL(to, "/clientip"))
	return parseSources(out, err)
}

func parseSources(out string, err error) (map[netip.Addr]int, error) {
	if err != nil {
		return nil, err
	}
	sources := map[netip.Addr]int{}
	for line := range strings.Lines(out) {
		seen, err := parseSeen(line, nil)
		if err != nil {
			return nil, err
		}
		sources[seen]++
	}
	return sources, nil
}

// Answer is the answer of a probe to /who: its own name and the source address it saw.
type Answer struct {
	Name   string
	Source netip.Addr
}

// WhoFromPod has a pod open connections to a probe one after the other, and returns each answer.
func (l *Lab) WhoFromPod(ctx context.Context, pod string, to netip.Addr, connections int) ([]Answer, error) {
	out, err := l.Call(ctx, pod, true, "get", "-count", fmt.Sprint(connections), URL(to, "/who"))
	if err != nil {
		return nil, err
	}
	var answers []Answer
	for line := range strings.Lines(out) {
		name, source, _ := strings.Cut(line, " ")
		seen, err := parseSeen(source, nil)
		if err != nil {
			return nil, err
		}
		answers = append(answers, Answer{Name: name, Source: seen})
	}
	return answers, nil
}

// SeenFromMachine is SeenFromPod from a node or an outside host.
func (l *Lab) SeenFromMachine(ctx context.Context, machine string, to netip.Addr) (netip.Addr, error) {
	out, err := l.Call(ctx, machine, false, "get", URL(to, "/clientip"))
	return parseSeen(out, err)
}

// Call runs a command of the probe in the network namespace of a pod or a machine, and returns its output. This process
// asks questions itself; other commands are run by the probe as a process of this machine. The command has neither
// the files nor the names of the pod; Exec runs programs that need those.
func (l *Lab) Call(ctx context.Context, from string, pod bool, args ...string) (string, error) {
	network, err := l.network(ctx, from, pod)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if ask.Has(args[0]) {
		err = ask.Run(ctx, network, &out, args[0], args[1:]...)
	} else {
		err = l.runProbe(ctx, network, &out, args)
	}
	if err != nil {
		return "", fmt.Errorf("%s from %s: %w", strings.Join(args, " "), from, err)
	}
	return strings.TrimSpace(out.String()), nil
}

// runProbe starts the probe on a thread in the namespace, which the process inherits.
func (l *Lab) runProbe(ctx context.Context, network ask.Namespace, out io.Writer, args []string) error {
	cmd := exec.CommandContext(ctx, l.probe, args...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := network.Do(cmd.Start); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// network finds the network namespace of a pod or a machine anew for each call: a machine gets another one when it boots,
// and so do its pods.
func (l *Lab) network(ctx context.Context, from string, pod bool) (ask.Namespace, error) {
	if !pod {
		first, err := kin.FirstProcess(l.directory(), from)
		return ask.Namespace(first + "/ns/net"), err
	}
	p, err := l.Kube.CoreV1().Pods(Namespace).Get(ctx, from, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find pod %s: %w", from, err)
	}
	return l.podNetwork(p)
}

// podNetwork finds the network namespace of a pod through one of its containers.
func (l *Lab) podNetwork(p *corev1.Pod) (ask.Namespace, error) {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running == nil {
			continue
		}
		process, err := kin.ContainerProcess(l.directory(), p.Spec.NodeName, strings.TrimPrefix(c.ContainerID, "containerd://"))
		if err != nil {
			return "", fmt.Errorf("find the network namespace of pod %s: %w", p.Name, err)
		}
		return ask.Namespace(process + "/ns/net"), nil
	}
	return "", fmt.Errorf("find the network namespace of pod %s: no container runs: phase %s: %s", p.Name, p.Status.Phase, waitingFor(p))
}

// serving are the commands of the probe that serve HTTP.
var serving = []string{"serve", "stream", "pulse", "traffic"}

// serves returns an error if the pod's probe does not serve HTTP yet, though that is its command: a pod is ready when
// its program has started, and questions take less time than that program to listen.
func (l *Lab) serves(ctx context.Context, p *corev1.Pod) error {
	args := p.Spec.Containers[0].Args
	port := slices.Index(args, "-port") + 1
	if p.Spec.Containers[0].Image != ProbeImage || len(args) == 0 || !slices.Contains(serving, args[0]) || port == 0 {
		return nil
	}
	network, err := l.podNetwork(p)
	if err != nil {
		return err
	}
	return network.Do(func() error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", args[port]))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// directory is the cluster's directory.
func (l *Lab) directory() string { return filepath.Dir(l.Kubeconfig) }

// surveyTimeout is how long a survey waits for each answer. It is longer on a slow machine.
const surveyTimeout = 3 * time.Second

// Survey has a pod or a machine get several URLs concurrently. It returns the answer
// or the error for each URL.
func (l *Lab) Survey(ctx context.Context, from string, pod bool, urls ...string) (map[string]string, error) {
	timeout := time.Duration(float64(surveyTimeout) * figures.Slowness())
	out, err := l.Call(ctx, from, pod, append([]string{"survey", "-timeout", timeout.String()}, urls...)...)
	if err != nil {
		return nil, err
	}
	var answers map[string]string
	if err := json.Unmarshal([]byte(out), &answers); err != nil {
		return nil, fmt.Errorf("survey of %s: %w", from, err)
	}
	return answers, nil
}

// Get fetches a URL from a machine; anything but a success status is an error.
func (l *Lab) Get(ctx context.Context, machine, url string) error {
	_, err := l.Call(ctx, machine, false, "get", url)
	return err
}

// TimedOut reports whether the probe's connection attempt timed out, as it does when packets are
// dropped. A missing pod, a refused connection and a missing route give other errors.
func TimedOut(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Client.Timeout exceeded while awaiting headers")
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
