package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// SystemNamespace is the namespace of the manifests.
	SystemNamespace = "ovn-kubernetes"
	// labelStopped, followed by the name of a DaemonSet, is the label that keeps its pod off a node.
	labelStopped = "e2e.ovnkube/stopped-"
)

// nodeDaemons are the daemons that run as DaemonSets of the same name when ovnkube is installed from the
// manifests, and master the one that is a Deployment. All others are processes of the node in any case.
var nodeDaemons = []string{"ovnkube-node", "ovn-controller"}

const master = "ovnkube-master"

// isPod reports whether a daemon runs in pods.
func (l *Lab) isPod(daemon string) bool {
	return l.installed && (daemon == master || slices.Contains(nodeDaemons, daemon))
}

// makeStoppable lets Service stop the DaemonSets' pods on single nodes. It restarts them all.
func (l *Lab) makeStoppable(ctx context.Context) error {
	for _, daemon := range nodeDaemons {
		patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":`+
			`{"nodeSelectorTerms":[{"matchExpressions":[{"key":%q,"operator":"DoesNotExist"}]}]}}}}}}}`, labelStopped+daemon)
		if _, err := l.System(ctx, "patch", "daemonset", daemon, "--patch", patch); err != nil {
			return err
		}
	}
	for _, daemon := range nodeDaemons {
		if _, err := l.System(ctx, "rollout", "status", "daemonset/"+daemon, "--timeout=3m"); err != nil {
			return err
		}
	}
	return nil
}

// System runs kubectl in the namespace of the manifests.
func (l *Lab) System(ctx context.Context, args ...string) (string, error) {
	return Run(ctx, append(append(l.Kubectl(), "--namespace="+SystemNamespace), args...)...)
}

// Service starts, stops or restarts ("start", "stop", "restart") a daemon of a node gracefully: a process, or a pod of the
// manifests. It returns when a stopped daemon has ended. Pods of DaemonSets can be stopped with Options.Stoppable only.
func (l *Lab) Service(ctx context.Context, action, node, daemon string) error {
	if !l.isPod(daemon) {
		return l.Kin.Service(ctx, action, node, daemon)
	}
	var err error
	switch {
	case action == "restart":
		_, err = l.System(ctx, "delete", "pod", "--selector=app="+daemon, "--field-selector=spec.nodeName="+node)
		return err
	case daemon == master && action == "start":
		_, err = l.System(ctx, "scale", "deployment", master, "--replicas=1")
	case daemon == master:
		_, err = l.System(ctx, "scale", "deployment", master, "--replicas=0")
	case action == "start":
		_, err = l.System(ctx, "label", "node", node, labelStopped+daemon+"-")
	default:
		_, err = l.System(ctx, "label", "node", node, labelStopped+daemon+"=")
	}
	if err != nil || action == "start" {
		return err
	}
	return Until(ctx, time.Minute, daemon+" of "+node+" to end", func(ctx context.Context) error {
		pods, err := l.Kube.CoreV1().Pods(SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + daemon, FieldSelector: "spec.nodeName=" + node})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("pod %s is %s", pods.Items[0].Name, pods.Items[0].Status.Phase)
		}
		return err
	})
}

// Logs returns the logs of a node's daemons. Those of pods include containers that have ended, as
// long as kubelet keeps them.
func (l *Lab) Logs(ctx context.Context, node, daemon string) (string, error) {
	if !l.isPod(daemon) {
		return l.Kin.Logs(ctx, node, daemon)
	}
	return l.Kin.Exec(ctx, node, "sh", "-c", `find /var/log/pods -path "*/$0_$1-*.log" -exec ls -tr {} + | xargs -r cat`, SystemNamespace, daemon)
}
