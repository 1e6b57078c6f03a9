package walkthrough

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// service is the name of the Service and of the EgressService.
const service = "demo-svc"

const manifest = `apiVersion: k8s.ovn.org/v1
kind: EgressService
metadata:
  name: demo-svc
  namespace: default
spec:
  sourceIPBy: "LoadBalancerIP"
  nodeSelector:
    matchLabels:
      node-role.kubernetes.io/worker: ""
`

// settle is how long the cluster may take to show what a step asked for. The health tracker notices
// a dead node long before Kubernetes does.
const settle = 30 * time.Second

// walk is a walkthrough in progress.
type walk struct {
	printer
	provider Provider
	ingress  []netip.Addr // the Service's ingress addresses, IPv4 first
	nodes    map[string]topology.Node
	pods     []lab.Pod
	host     string // the current egress host
	stopped  string // the previous host, which was stopped
	first    string // the router policies before the EgressService
}

// Run runs the walkthrough and returns the node that it stopped, which stays stopped. The Service
// and its pods stay too; End deletes them.
func Run(ctx context.Context, l *lab.Lab, provider Provider, out io.Writer) (stopped string, err error) {
	w := &walk{printer: printer{out: out, lab: l}, provider: provider}
	for _, step := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"The cluster, a LoadBalancer Service and its pods", w.begin},
		{"Before: pods leave with the address of their node", w.before},
		{"An EgressService makes one node serve the traffic", w.create},
		{"The node stops: everything jumps to the other one", w.failover},
		{"Without the EgressService all is as it was", w.remove},
	} {
		w.heading("%s", step.title)
		if err := step.run(ctx); err != nil {
			return w.stopped, fmt.Errorf("%s: %w", step.title, err)
		}
	}
	return w.stopped, nil
}

// End deletes what Run left.
func End(ctx context.Context, l *lab.Lab) error {
	if err := l.Kube.CoreV1().Services(lab.Namespace).Delete(ctx, service, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete service: %w", err)
	}
	pods, err := l.Kube.CoreV1().Pods(lab.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + service})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		if err := l.DeletePod(ctx, pods.Items[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// begin creates the Service and one endpoint on each of two nodes.
func (w *walk) begin(ctx context.Context) error {
	if _, err := w.kubectl(ctx, "get", "nodes"); err != nil {
		return err
	}
	var err error
	if w.nodes, err = w.lab.Nodes(ctx); err != nil {
		return err
	}
	families := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	policy := corev1.IPFamilyPolicyRequireDualStack
	_, err = w.lab.Kube.CoreV1().Services(lab.Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service, Namespace: lab.Namespace, Annotations: w.provider.Annotations()},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilies: families, IPFamilyPolicy: &policy,
			Selector: map[string]string{"app": service},
			Ports:    []corev1.ServicePort{{Port: lab.ServePort, TargetPort: intstr.FromInt32(lab.ServePort)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create service: %w", err)
	}
	if w.ingress, err = w.provider.Assign(ctx, service); err != nil {
		return err
	}
	for i, node := range []string{lab.ControlPlane, "ovn-worker2"} {
		pod, err := w.lab.RunServer(ctx, fmt.Sprintf("demo-%d", i+1), node, map[string]string{"app": service})
		if err != nil {
			return err
		}
		w.pods = append(w.pods, pod)
	}
	if _, err := w.kubectl(ctx, "get", "pods", "-o", "wide"); err != nil {
		return err
	}
	_, err = w.kubectl(ctx, "describe", "svc", service)
	return err
}

func (w *walk) before(ctx context.Context) error {
	err := lab.Until(ctx, settle, "the policies of the bare cluster", func(ctx context.Context) error {
		rows, err := w.policies(ctx)
		if err != nil {
			return err
		}
		w.first = rows.text
		return rows.checkBare(w.nodes)
	})
	if err != nil {
		return err
	}
	if err := w.showPolicies(ctx); err != nil {
		return err
	}
	w.ok("1004 for each node and family, 102 for east-west traffic, nothing of an EgressService")
	return w.seenFromNodes(ctx)
}

func (w *walk) create(ctx context.Context) error {
	path, err := w.lab.WriteFile("egress-service.yaml", manifest)
	if err != nil {
		return err
	}
	w.shown("cat egress-service.yaml", manifest)
	if _, err := w.kubectl(ctx, "apply", "-f", path); err != nil {
		return err
	}
	if err := w.waitHost(ctx, func(host string) bool { return host != "" }); err != nil {
		return err
	}
	if err := w.leaveHost(ctx); err != nil {
		return err
	}
	return w.served(ctx)
}

// leaveHost moves the endpoint that shares a node with the host, if there is one: otherwise only
// the other endpoint would survive the stop, and there would be less to see.
func (w *walk) leaveHost(ctx context.Context) error {
	for i, pod := range w.pods {
		if pod.Node != w.host {
			continue
		}
		w.say("%s was chosen, which also runs endpoint %s: moving the endpoint to the other worker,", w.host, pod.Name)
		w.say("so that it is alive when %s stops.", w.host)
		w.say("")
		if err := w.lab.DeletePod(ctx, pod.Name); err != nil {
			return err
		}
		for name := range w.nodes {
			if name != w.host && name != lab.ControlPlane {
				moved, err := w.lab.RunServer(ctx, pod.Name, name, map[string]string{"app": service})
				if err != nil {
					return err
				}
				w.pods[i] = moved
			}
		}
	}
	return nil
}

func (w *walk) failover(ctx context.Context) error {
	w.stopped = w.host
	w.shown("kin node stop "+w.stopped, "")
	began := time.Now()
	if err := w.lab.Kin.Node(ctx, "stop", w.stopped); err != nil {
		return err
	}
	if err := w.waitHost(ctx, func(host string) bool { return host != "" && host != w.stopped }); err != nil {
		return err
	}
	w.say("%s took over from %s %.1f s after it began to stop.", w.host, w.stopped, time.Since(began).Seconds())
	w.say("")
	return w.served(ctx)
}

func (w *walk) remove(ctx context.Context) error {
	if _, err := w.kubectl(ctx, "delete", "egressservice", service); err != nil {
		return err
	}
	err := lab.Until(ctx, settle, "the policies to be as before", func(ctx context.Context) error {
		rows, err := w.policies(ctx)
		if err != nil {
			return err
		}
		if rows.text != w.first {
			return fmt.Errorf("they are\n%s", rows.text)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.showPolicies(ctx); err != nil {
		return err
	}
	w.ok("the policies are those of the beginning")
	for _, is4 := range []bool{true, false} {
		if err := w.translation(ctx, is4, nil); err != nil {
			return err
		}
	}
	if err := w.labelled(ctx, ""); err != nil {
		return err
	}
	return w.seenFromNodes(ctx)
}

// served checks everything that is visible once there is an egress host.
func (w *walk) served(ctx context.Context) error {
	if _, err := w.kubectl(ctx, "describe", "egressservice", service); err != nil {
		return err
	}
	w.ok("the status points to %s", w.host)
	err := lab.Until(ctx, settle, "one 101 policy for each endpoint", func(ctx context.Context) error {
		rows, err := w.policies(ctx)
		if err != nil {
			return err
		}
		return rows.checkReroutes(w.pods, w.nodes[w.host])
	})
	if err != nil {
		return err
	}
	if err := w.showPolicies(ctx); err != nil {
		return err
	}
	w.ok("the endpoints' traffic goes to the management port of %s", w.host)
	for _, is4 := range []bool{true, false} {
		if err := w.translation(ctx, is4, w.pods); err != nil {
			return err
		}
	}
	if err := w.labelled(ctx, w.host); err != nil {
		return err
	}
	if err := w.provider.Announce(ctx, w.ingress, w.host); err != nil {
		return err
	}
	w.say("The load-balancer provider sees the label and announces the addresses from %s.", w.host)
	w.say("")
	if err := w.seen(ctx, func(lab.Pod) ([]netip.Addr, error) { return w.ingress, nil }); err != nil {
		return err
	}
	return w.answered(ctx)
}

// waitHost waits until the status names a host that is acceptable.
func (w *walk) waitHost(ctx context.Context, will func(string) bool) error {
	return lab.Until(ctx, settle, "the EgressService to have a host", func(ctx context.Context) error {
		es, err := w.lab.Egress.EgressServiceV1().EgressServices(lab.Namespace).Get(ctx, service, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !will(es.Status.Host) {
			said, _ := json.Marshal(es.Status)
			return fmt.Errorf("its status is %s", said)
		}
		w.host = es.Status.Host
		return nil
	})
}
