package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"time"
)

// StaticPodPath is where the kubelets of a cluster look for static pods, if its configuration says
// so.
const StaticPodPath = "/etc/kubernetes/manifests"

// staticGrace is the grace period in seconds of a static pod and of the deletion of its mirror pod.
// Without one, the mirror pod is missing for a minute.
const staticGrace = 5

// RunStaticPulse is RunPulse for a static pod, whose name ends with that of its node. End removes
// its manifest; AwaitGone waits until the mirror pod is gone.
func (l *Lab) RunStaticPulse(ctx context.Context, name, node string, labels map[string]string, to []netip.Addr) (pod Pod, end func(context.Context) error, err error) {
	p := newPod(name, node, labels, "pulse", "-port", fmt.Sprint(reportPort), "-to", targets(to, ServePort))
	p.APIVersion, p.Kind, p.Spec.NodeSelector = "v1", "Pod", nil
	*p.Spec.TerminationGracePeriodSeconds = staticGrace
	manifest, err := json.Marshal(p)
	if err != nil {
		return Pod{}, nil, fmt.Errorf("encode pod %s: %w", name, err)
	}
	file, mirror := path.Join(StaticPodPath, name+".json"), name+"-"+node
	end = func(ctx context.Context) error {
		if _, err := l.Kin.Exec(ctx, node, "rm", "-f", file); err != nil {
			return fmt.Errorf("remove the manifest of pod %s: %w", name, err)
		}
		return nil
	}
	// The kubelet reads every file whose name does not begin with a dot, so the file must appear
	// complete.
	hidden := path.Join(StaticPodPath, "."+name)
	_, err = l.Kin.Exec(ctx, node, "sh", "-c", `mkdir -p "${1%/*}" && printf %s "$0" >"$2" && mv "$2" "$1"`, string(manifest), file, hidden)
	if err != nil {
		return Pod{}, end, fmt.Errorf("write the manifest of pod %s: %w", name, err)
	}
	pod, err = l.WaitPod(ctx, mirror, 2*time.Minute)
	return pod, end, err
}
