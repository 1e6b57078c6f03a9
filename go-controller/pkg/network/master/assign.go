package master

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
)

// globalName and globalOptions are the wanted content of NB_Global. With datapath groups, a logical flow that several
// datapaths share exists only once in the southbound database.
const globalName = "global"

var globalOptions = map[string]string{"use_logical_dp_groups": "true"}

// globalDefaults are options that an administrator may have set to something else.
var globalDefaults = map[string]string{
	// In milliseconds, the default for other connections than local ones, which ovn-northd does not probe by default. Then it
	// re-establishes one that has been silent for long only after increasing delays; and nothing wakes it to repeat a
	// transaction that failed, for example because the disk was full.
	"northd_probe_interval": "5000",
}

// reconcileCluster assigns subnets and join addresses to all nodes, applies the
// rows that exist once, and writes the assignments into the annotations.
func (c *Controller) reconcileCluster(ctx context.Context) error {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	assigned := network.Assign(c.Config, append(c.claims(nodes), c.leftovers(nodes)...))
	changed := c.setAssigned(assigned)
	if err := c.apply(ctx, clusterKey, network.ClusterRows(c.Config, assigned)); err != nil {
		return err
	}
	c.queue.Enqueue(changed...)
	if c.SetGlobal != nil {
		if err := c.SetGlobal(ctx, globalName, globalOptions, globalDefaults); err != nil {
			return err
		}
	}
	var errs []error
	for _, n := range nodes {
		errs = append(errs, c.annotate(ctx, n, assigned[n.Name]))
	}
	return errors.Join(errs...)
}

// claims returns what nodes have been assigned: what this process assigned and the lister
// does not show yet, else what their annotations say.
func (c *Controller) claims(nodes []*corev1.Node) []network.Claim {
	claims := make([]network.Claim, 0, len(nodes))
	present := make(map[types.UID]bool, len(nodes))
	for _, n := range nodes {
		present[n.UID] = true
		node, _ := c.decoded.Node(n) // invalid annotations are ignored
		claim := network.Claim{Name: n.Name, Created: n.CreationTimestamp.Time, Subnets: node.Subnets, Join: node.Join}
		if a, ok := c.assumed[n.Name]; ok {
			if a.uid != n.UID || slices.Equal(a.subnets, node.Subnets) && slices.Equal(a.join, node.Join) {
				delete(c.assumed, n.Name)
			} else {
				claim.Subnets, claim.Join = a.subnets, a.join
			}
		}
		claims = append(claims, claim)
	}
	maps.DeleteFunc(c.assumed, func(_ string, a assumption) bool { return !present[a.uid] })
	maps.DeleteFunc(c.reported, func(uid types.UID, _ [3]string) bool { return !present[uid] })
	maps.DeleteFunc(c.patched, func(uid types.UID, _ patched) bool { return !present[uid] })
	return claims
}

// leftovers returns what nodes had that are gone and still have rows. Their removal enqueues the cluster key.
func (c *Controller) leftovers(nodes []*corev1.Node) []network.Claim {
	present := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		present[n.Name] = true
	}
	var claims []network.Claim
	for _, name := range nb.Objects(c.Writer, network.Feature) {
		if name == clusterKey || present[name] {
			continue
		}
		had := network.Recall(name, c.Writer.Rows(network.Owner(name)))
		claims = append(claims, network.Claim{Name: name, Gone: true, Subnets: had.Subnets, Join: had.Join})
	}
	return claims
}

// annotate writes an assignment into a node's annotations, and what cannot be assigned into
// its conditions. It is not an error if the node is gone by now.
func (c *Controller) annotate(ctx context.Context, n *corev1.Node, a network.Assignment) error {
	err := c.patch(ctx, n, a)
	if a.Reason == "" {
		delete(c.reported, n.UID)
	} else if err == nil {
		err = c.reportLacking(ctx, n, a)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *Controller) patch(ctx context.Context, n *corev1.Node, a network.Assignment) error {
	n, err := c.written.Get(n.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	want := map[string]*string{
		kube.AnnotationNodeSubnets:      annotation(a.Subnets, kube.FormatNodeSubnets),
		kube.AnnotationGatewayLRPIfAddr: annotation(a.Join, kube.FormatGatewayLRPIfAddr),
	}
	c.Decide(n.UID, want)
	if upToDate(n, want) {
		return nil
	}
	// The key is often reconciled again before the informer shows the annotations.
	if last := c.patched[n.UID]; last.on == n && maps.EqualFunc(last.annotations, want, ptr.Equal[string]) {
		return nil
	}
	// Assumed before it is written: a patch that failed may have been applied.
	c.assumed[n.Name] = assumption{uid: n.UID, subnets: a.Subnets, join: a.Join}
	if err := kube.PatchNode(ctx, c.Client, n, kube.Metadata{Annotations: want, Unseen: &c.unseen}); err != nil {
		return err
	}
	c.patched[n.UID] = patched{n, want}
	klog.V(2).InfoS("Assigned node", "node", n.Name, "subnets", a.Subnets, "join", a.Join)
	for _, why := range a.Refused {
		c.Recorder.Event(n, corev1.EventTypeWarning, "AddressRefused", why)
	}
	return nil
}

// annotation formats prefixes; nil, which deletes the annotation, if there are none.
func annotation(prefixes []netip.Prefix, format func([]netip.Prefix) string) *string {
	if len(prefixes) == 0 {
		return nil
	}
	return kube.Value(format(prefixes))
}

// upToDate reports whether a node's annotations are as wanted.
func upToDate(n *corev1.Node, want map[string]*string) bool {
	for k, w := range want {
		if h, ok := n.Annotations[k]; ok != (w != nil) || ok && h != *w {
			return false
		}
	}
	return true
}

// reportLacking reports, once, that a node cannot be assigned something.
func (c *Controller) reportLacking(ctx context.Context, n *corev1.Node, a network.Assignment) error {
	report := [3]string{string(corev1.ConditionTrue), a.Reason, a.Message}
	if unavailable(n) != report && c.reported[n.UID] != report {
		c.reported[n.UID] = report
		c.Recorder.Event(n, corev1.EventTypeWarning, a.Reason, a.Message)
		klog.InfoS("Cannot assign node", "node", n.Name, "reason", a.Reason, "message", a.Message)
	}
	return c.setCondition(ctx, n, corev1.NodeCondition{
		Type:    corev1.NodeNetworkUnavailable,
		Status:  corev1.ConditionTrue,
		Reason:  a.Reason,
		Message: a.Message,
	})
}

// condition returns the NetworkUnavailable condition of a node.
func condition(n *corev1.Node) (corev1.NodeCondition, bool) {
	for _, have := range n.Status.Conditions {
		if have.Type == corev1.NodeNetworkUnavailable {
			return have, true
		}
	}
	return corev1.NodeCondition{}, false
}

// unavailable returns the status, reason and message of that condition.
func unavailable(n *corev1.Node) [3]string {
	have, _ := condition(n)
	return [3]string{string(have.Status), have.Reason, have.Message}
}
