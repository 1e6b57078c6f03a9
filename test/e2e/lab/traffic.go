package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Traffic is a pod that keeps a connection to each echo server busy and opens new ones all the
// time.
type Traffic struct {
	// Namespace defaults to that of the lab.
	Namespace, Name, Node string
	Labels                map[string]string
	To                    []netip.AddrPort
}

// TrafficReport is how connections to one server fared.
type TrafficReport struct {
	// Lasting is the connection that stays open, Fresh the new ones.
	Lasting, Fresh StreamReport
}

// RunTraffic starts the pod and waits until it is ready.
func (l *Lab) RunTraffic(ctx context.Context, t Traffic) (Pod, error) {
	list := ""
	for i, to := range t.To {
		if i > 0 {
			list += ","
		}
		list += to.String()
	}
	pod := newPod(t.Name, t.Node, t.Labels, "traffic", "-port", fmt.Sprint(reportPort), "-to", list)
	*pod.Spec.TerminationGracePeriodSeconds = senderGrace
	if t.Namespace == "" {
		t.Namespace = Namespace
	}
	pod.Namespace = t.Namespace
	pods := l.Kube.CoreV1().Pods(t.Namespace)
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return Pod{}, fmt.Errorf("create pod: %w", err)
	}
	var found Pod
	err := Until(ctx, time.Minute, "pod "+t.Name+" to have its addresses", func(ctx context.Context) error {
		p, err := pods.Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning || len(p.Status.PodIPs) == 0 {
			return fmt.Errorf("phase %s: %s", p.Status.Phase, waitingFor(p))
		}
		if found, err = podOf(p); err != nil {
			return err
		}
		return l.serves(ctx, p)
	})
	return found, err
}

// TrafficOf returns, from the pod's own node, how the connections of a traffic pod fared since the
// last reset, by server. It does not need the API server.
func (l *Lab) TrafficOf(ctx context.Context, pod Pod, reset bool) (map[netip.AddrPort]TrafficReport, error) {
	url := fmt.Sprintf("http://%s/report", netip.AddrPortFrom(pod.Addresses[0], reportPort))
	if reset {
		url += "?reset"
	}
	out, err := l.Call(ctx, pod.Node, false, "get", url)
	if err != nil {
		return nil, err
	}
	reports := map[netip.AddrPort]TrafficReport{}
	if err := json.Unmarshal([]byte(out), &reports); err != nil {
		return nil, fmt.Errorf("report of pod %s: %w", pod.Name, err)
	}
	return reports, nil
}

// ServeAlso starts another probe server on a machine that serves, on a port and the next one; it
// ends with the lab. It is not an error if it runs already.
func (l *Lab) ServeAlso(ctx context.Context, machine string, port uint16) error {
	key := fmt.Sprintf("%s:%d", machine, port)
	if l.servers[key] == nil {
		server, err := l.Kin.ExecAttached(machine, MachineProbe, "serve", "-port", fmt.Sprint(port), "-until-stdin-closes")
		if err != nil {
			return err
		}
		l.servers[key] = server
	}
	return l.awaitServer(ctx, machine, port)
}

// awaitServer waits until a probe serves on a machine.
func (l *Lab) awaitServer(ctx context.Context, machine string, port uint16) error {
	return Until(ctx, 20*time.Second, fmt.Sprintf("the server at port %d of %s", port, machine), func(ctx context.Context) error {
		return l.Get(ctx, machine, fmt.Sprintf("http://127.0.0.1:%d/who", port))
	})
}
