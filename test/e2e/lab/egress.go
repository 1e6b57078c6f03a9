package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunPulse starts a pod that queries addresses by UDP every ten milliseconds, until it is deleted.
func (l *Lab) RunPulse(ctx context.Context, name, node string, labels map[string]string, to []netip.Addr) (Pod, error) {
	return l.RunPulseEvery(ctx, 10*time.Millisecond, name, node, labels, to)
}

// RunPulseEvery is RunPulse with another interval.
func (l *Lab) RunPulseEvery(ctx context.Context, every time.Duration, name, node string, labels map[string]string, to []netip.Addr) (Pod, error) {
	return l.runPod(ctx, name, node, labels, "pulse", "-port", fmt.Sprint(reportPort), "-every", every.String(), "-to", targets(to, ServePort))
}

// StartPulse is RunPulseEvery without waiting for the pod.
func (l *Lab) StartPulse(ctx context.Context, every time.Duration, name, node string, labels map[string]string, to []netip.Addr) error {
	return l.createPod(ctx, newPod(name, node, labels, "pulse", "-port", fmt.Sprint(reportPort), "-every", every.String(), "-to", targets(to, ServePort)))
}

// targets lists each address with the port, in the form that the probe takes.
func targets(to []netip.Addr, port uint16) string {
	list := make([]string, len(to))
	for i, a := range to {
		list[i] = netip.AddrPortFrom(a, port).String()
	}
	return strings.Join(list, ",")
}

// RunHostServer starts a server pod on the host network of a node.
func (l *Lab) RunHostServer(ctx context.Context, name, node string, labels map[string]string, port uint16) (Pod, error) {
	pod := newPod(name, node, labels, "serve", "-port", fmt.Sprint(port))
	pod.Spec.HostNetwork = true
	if err := l.createPod(ctx, pod); err != nil {
		return Pod{}, err
	}
	return l.WaitPod(ctx, name, time.Minute)
}

// RunToEnd runs a pod that exits at once, and waits until it has completed. The pod stays until it
// is deleted.
func (l *Lab) RunToEnd(ctx context.Context, name, node string, labels map[string]string) (Pod, error) {
	pod := newPod(name, node, labels, "help")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	if err := l.createPod(ctx, pod); err != nil {
		return Pod{}, err
	}
	var found Pod
	err := Until(ctx, time.Minute, "pod "+name+" to end", func(ctx context.Context) error {
		p, err := l.Kube.CoreV1().Pods(Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("phase %s: %s", p.Status.Phase, waitingFor(p))
		}
		found, err = podOf(p)
		return err
	})
	return found, err
}
