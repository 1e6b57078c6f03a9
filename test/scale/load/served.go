package load

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// fieldManager is the field manager of masters and agents, which are the same program.
const fieldManager = "ovnkube"

// settings are the masters' settings.
const settings = `[default]
cluster-subnets=%s/23
[kubernetes]
service-cidrs=%s
[ovnkubernetesfeature]
enable-egress-ip=true
enable-egress-service=true
enable-multi-external-gateway=true
`

// MakeServed creates all objects of a cluster, with the statuses and annotations of nodes, pods and EgressIPs that a
// master, agents and kubelets would write, so that none of these has to run. EgressServices have
// a host, but no conditions; policies have no status.
func (c Clients) MakeServed(ctx context.Context, s Size) error {
	if err := c.MakeBase(ctx, s); err != nil {
		return err
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ovnkube"}, Data: map[string]string{"ovnkube.conf": fmt.Sprintf(settings, PodRange, ServiceRange)}}
	if _, err := c.Kube.CoreV1().ConfigMaps(systemNamespace).Create(ctx, object, metav1.CreateOptions{}); created(err) != nil {
		return fmt.Errorf("make the settings: %w", err)
	}
	nodes := make([]place.Node, s.Nodes)
	if err := each(ctx, s.Nodes, func(ctx context.Context, i int) (err error) {
		nodes[i], err = c.serveNode(ctx, i)
		return err
	}); err != nil {
		return err
	}
	pods, err := c.servePods(ctx, s, nodes)
	if err != nil {
		return err
	}
	if err := c.MakeFeatures(ctx, s, func(group string) []*corev1.Pod { return pods[group] }); err != nil {
		return err
	}
	if err := each(ctx, s.EgressServices, func(ctx context.Context, i int) error {
		return c.serveEgressService(ctx, group(kindService, i), NodeName(s.Nodes-s.ServiceHosts+i%s.ServiceHosts))
	}); err != nil {
		return err
	}
	all, err := c.IPs.EgressIPV1().EgressIPs().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list EgressIPs: %w", err)
	}
	var decoded []egressip.EgressIP
	for i := range all.Items {
		decoded = append(decoded, egressip.Decode(&all.Items[i]))
	}
	decisions := egressip.Decide(nodes, decoded, egressip.Network{Cluster: []netip.Prefix{PodRange}, Service: []netip.Prefix{ServiceRange}})
	return each(ctx, len(all.Items), func(ctx context.Context, i int) error {
		return c.serveEgressIP(ctx, &all.Items[i], decisions[all.Items[i].Name])
	})
}

// podPrefix is the prefix length of nodes' subnets.
const podPrefix = 23

// serveNode writes what a master writes for a node.
func (c Clients) serveNode(ctx context.Context, i int) (place.Node, error) {
	n, err := c.Kube.CoreV1().Nodes().Get(ctx, NodeName(i), metav1.GetOptions{})
	if err != nil {
		return place.Node{}, fmt.Errorf("get node: %w", err)
	}
	known := Node(i)
	known.Subnets = []netip.Prefix{netip.PrefixFrom(nth(PodRange.Addr(), i<<(32-podPrefix)), podPrefix)}
	known.Join = []netip.Prefix{netip.PrefixFrom(nth(joins, i), 16)}
	for name, value := range kube.FormatNode(known) {
		n.Annotations[name] = value
	}
	if n, err = c.Kube.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return place.Node{}, fmt.Errorf("give node %s its subnet: %w", known.Name, err)
	}
	decoded, err := kube.Node(n)
	return place.Node{Node: decoded, Reach: place.Alive}, err
}

// servePods assigns pods addresses of their nodes' subnets, marks them as running, and
// returns them by namespace.
func (c Clients) servePods(ctx context.Context, s Size, nodes []place.Node) (map[string][]*corev1.Pod, error) {
	all, err := c.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	subnets := map[string]netip.Prefix{}
	for _, n := range nodes {
		subnets[n.Name] = n.Subnets[0]
	}
	on, addrs := map[string]int{}, make([]netip.Addr, len(all.Items))
	for i, p := range all.Items {
		const first = 3 // after the router and the management port
		addrs[i] = nth(subnets[p.Spec.NodeName].Addr(), first+on[p.Spec.NodeName])
		on[p.Spec.NodeName]++
	}
	err = each(ctx, len(all.Items), func(ctx context.Context, i int) error {
		p := &all.Items[i]
		if len(p.Status.PodIPs) == 1 && p.Status.PodIPs[0].IP == addrs[i].String() {
			return nil
		}
		prefix := netip.PrefixFrom(addrs[i], podPrefix)
		p.Annotations = map[string]string{kube.AnnotationPodNetworks: kube.FormatPodNetwork(topology.PodNetwork{
			Addrs: []netip.Prefix{prefix}, MAC: podMAC(addrs[i]), Gateways: []netip.Addr{nth(prefix.Masked().Addr(), 1)}})}
		updated, err := c.Kube.CoreV1().Pods(p.Namespace).Update(ctx, p, metav1.UpdateOptions{FieldManager: fieldManager})
		if err != nil {
			return fmt.Errorf("give pod %s its address: %w", p.Name, err)
		}
		updated.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addrs[i].String(), PodIPs: []corev1.PodIP{{IP: addrs[i].String()}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		if updated, err = c.Kube.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{FieldManager: "kubelet"}); err != nil {
			return fmt.Errorf("run pod %s: %w", p.Name, err)
		}
		*p = *updated
		return nil
	})
	pods := map[string][]*corev1.Pod{}
	for i := range all.Items {
		p := &all.Items[i]
		pods[p.Namespace] = append(pods[p.Namespace], p)
	}
	return pods, err
}

// podMAC returns the MAC address of a pod.
func podMAC(a netip.Addr) string {
	four := a.As4()
	return fmt.Sprintf("0a:58:%02x:%02x:%02x:%02x", four[0], four[1], four[2], four[3])
}

// serveEgressService assigns an EgressService its host and writes the host's acknowledgement.
func (c Clients) serveEgressService(ctx context.Context, name, host string) error {
	services := c.Services.EgressServiceV1().EgressServices(name)
	eg, err := services.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get EgressService: %w", err)
	}
	eg.Status.Host, eg.Status.Programmed = host, &egressservicev1.ProgrammedStatus{Host: host}
	if _, err := services.UpdateStatus(ctx, eg, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("serve EgressService %s: %w", name, err)
	}
	return nil
}

// serveEgressIP writes the acknowledgements of the nodes to which an EgressIP's addresses are assigned.
func (c Clients) serveEgressIP(ctx context.Context, e *egressipv1.EgressIP, d egressip.Decision) error {
	e.Status.Items = d.Items()
	for _, item := range e.Status.Items {
		e.Status.Programmed = append(e.Status.Programmed, egressipv1.ProgrammedStatus{Node: item.Node, EgressIPs: []string{item.EgressIP}})
	}
	e.Status.Conditions = egressip.Conditions(d, e.Status, egressip.Report{})
	for i := range e.Status.Conditions {
		e.Status.Conditions[i].LastTransitionTime, e.Status.Conditions[i].ObservedGeneration = metav1.Now(), e.Generation
	}
	if _, err := c.IPs.EgressIPV1().EgressIPs().UpdateStatus(ctx, e, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("serve EgressIP %s: %w", e.Name, err)
	}
	return nil
}
