package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"time"
)

// StaticPodPath is where the kubelets of a cluster look for static pods, if its
// configuration says so.
const StaticPodPath = "/etc/kubernetes/manifests"

// staticGrace is how many seconds a static pod and the deletion of its mirror have. With
// none the mirror is away for a minute.
const staticGrace = 5

// RunStaticPulse is RunPulse of a static pod, whose name ends in that of its node. End
// removes its manifest and waits until its mirror is gone.
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
		return l.awaitGone(ctx, mirror)
	}
	// The kubelet reads what is there, but for names that begin with a dot: the file appears as a whole.
	hidden := path.Join(StaticPodPath, "."+name)
	_, err = l.Kin.Exec(ctx, node, "sh", "-c", `mkdir -p "${1%/*}" && printf %s "$0" >"$2" && mv "$2" "$1"`, string(manifest), file, hidden)
	if err != nil {
		return Pod{}, end, fmt.Errorf("write the manifest of pod %s: %w", name, err)
	}
	pod, err = l.WaitPod(ctx, mirror, 2*time.Minute)
	return pod, end, err
}
