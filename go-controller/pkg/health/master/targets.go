package master

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

// key is the only key: the targets are replaced as a whole.
const key = "targets"

// Targets keeps the targets of a tracker equal to the nodes of the cluster.
type Targets struct {
	nodes   corelisters.NodeLister
	decoded kube.Nodes
	tracker *health.Tracker
	queue   *queue.Controller
}

// New returns the Targets of tracker. The informer is started by the caller.
func New(nodes coreinformers.NodeInformer, tracker *health.Tracker) (*Targets, error) {
	decoded, err := kube.NewNodes(nodes.Informer())
	if err != nil {
		return nil, err
	}
	t := &Targets{nodes: nodes.Lister(), decoded: decoded, tracker: tracker}
	t.queue = queue.New("health-targets", t.reconcile)
	err = t.queue.Watch(nodes.Informer(), func(old, new any) []string {
		o, _ := old.(*corev1.Node)
		n, _ := new.(*corev1.Node)
		if o != nil && n != nil && o.Annotations[kube.AnnotationNodeSubnets] == n.Annotations[kube.AnnotationNodeSubnets] {
			return nil
		}
		return []string{key}
	})
	if err != nil {
		return nil, err
	}
	t.queue.Seed(func() []string { return []string{key} })
	return t, nil
}

// Run runs until ctx is done.
func (t *Targets) Run(ctx context.Context) error { return t.queue.Run(ctx, 1) }

func (t *Targets) reconcile(context.Context, string) error {
	nodes, err := t.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	targets := map[string][]netip.Addr{}
	for _, n := range nodes {
		node, err := t.decoded.Node(n)
		if err != nil { // the rest is decoded; with invalid subnets there are none
			klog.V(2).InfoS("Probing the addresses of a node that can be read", "node", n.Name, "err", err)
		}
		targets[node.Name] = node.ManagementAddrs()
	}
	t.tracker.SetTargets(targets)
	return nil
}
