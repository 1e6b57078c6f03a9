package master

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels}}
}

// node creates the nodes of the documentation: number is that of the pod subnet. All except
// the control plane may hold egress addresses, and have a secondary network.
func node(name string, number int, change ...func(*corev1.Node)) *corev1.Node {
	primary := prefixes(fmt.Sprintf("172.18.0.%d/16", number+2), fmt.Sprintf("fc00:f853:ccd:e793::%d/64", number+2))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{},
		Annotations: map[string]string{
			kube.AnnotationNodeSubnets: kube.FormatNodeSubnets(prefixes(
				fmt.Sprintf("10.244.%d.0/24", number), fmt.Sprintf("fd00:10:244:%d::/64", number+1))),
			kube.AnnotationChassisID: "chassis-" + name,
			kube.AnnotationL3Gateway: kube.FormatL3Gateway(topology.Gateway{Mode: topology.GatewayLocal, InterfaceID: "breth0_" + name,
				MAC: fmt.Sprintf("02:42:ac:12:00:%02x", number+2), Addrs: primary, NextHops: addrs("172.18.0.1")}),
			kube.AnnotationPrimaryIfAddr: kube.FormatPrimaryIfAddr(primary),
			kube.AnnotationHostAddresses: kube.FormatHostAddresses(append(slices.Clone(primary),
				prefixes(fmt.Sprintf("172.19.0.%d/24", number+2))...)),
			kube.AnnotationGatewayLRPIfAddr: kube.FormatGatewayLRPIfAddr(
				prefixes(fmt.Sprintf("100.64.0.%d/16", number+2), fmt.Sprintf("fd98::%d/64", number+2))),
		}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	if name != "ovn-control-plane" {
		n.Labels[kube.LabelEgressAssignable] = ""
	}
	for _, f := range change {
		f(n)
	}
	return n
}

var born = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// egress selects the pods with app=web outside of development.
func egress(name string, ips []v1.Address, change ...func(*v1.EgressIP)) *v1.EgressIP {
	e := &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Time{Time: born}}}
	e.Spec.EgressIPs = ips
	e.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: "environment", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"development"}}}
	e.Spec.PodSelector.MatchLabels = map[string]string{"app": "web"}
	for _, f := range change {
		f(e)
	}
	return e
}

// pod creates a pod and, unless it is new, its port.
func (w *world) pod(key, where string, ips ...string) *corev1.Pod {
	w.t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(key + "-uid"), Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: where}}
	owner, rows := portOf(key, where, ips...)
	if _, err := w.db.Apply(context.Background(), owner, rows); err != nil {
		w.t.Fatal(err)
	}
	w.create(p)
	return p
}

// portOf returns the rows that pod/master writes for a pod.
func portOf(key, where string, ips ...string) (nb.Owner, []nb.Row) {
	return nb.Owner{Feature: portFeature, Object: key}, []nb.Row{{
		ID: key, Parent: nb.Parent{Table: nbdb.LogicalSwitchTable, Name: where},
		Model: &nbdb.LogicalSwitchPort{Name: strings.ReplaceAll(key, "/", "_"), Addresses: []string{"0a:58:0a:f4:00:01 " + strings.Join(ips, " ")}},
	}}
}
