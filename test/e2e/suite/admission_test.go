package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// admission tests who may write what, while ovnkube does not run, so that nothing else writes. All
// requests are dry runs.
func (s *suite) admission(t *testing.T) {
	for _, node := range nodes {
		s.pauseDaemon(t, node, "ovnkube-node")
	}
	s.pauseDaemon(t, lab.ControlPlane, "ovnkube-master")
	tryAdmission(t, s.RESTConfig())
}

// pauseDaemon keeps a daemon of a node from running until the test ends.
func (s *suite) pauseDaemon(t *testing.T, node, daemon string) {
	t.Helper()
	if err := s.Service(t.Context(), "stop", node, daemon); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Service(context.WithoutCancel(t.Context()), "start", node, daemon); err != nil {
			t.Error(err)
		}
	})
}

// The nodes, objects and people in the table.
const (
	ownNode, otherNode = "ovn-worker", "ovn-worker2"
	teamNamespace      = "team"     // alice edits it
	othersNamespace    = "others"   // alice has no rights here
	carolsNamespace    = "carols"   // carol edits team and may change this one
	gatewayPod         = "gateway"  // created by the administrator, in team
	assignedPod        = "assigned" // has addresses
)

const (
	merge = types.MergePatchType
	patch = types.JSONPatchType
)

var (
	nodeKind        = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	podKind         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	namespaceKind   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	secretKind      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	deploymentKind  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	replicaSetKind  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	cronJobKind     = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	leaseKind       = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	egressIPKind    = schema.GroupVersionResource{Group: "k8s.ovn.org", Version: "v1", Resource: "egressips"}
	egressServices  = schema.GroupVersionResource{Group: "k8s.ovn.org", Version: "v1", Resource: "egressservices"}
	externalRoutes  = schema.GroupVersionResource{Group: "k8s.ovn.org", Version: "v1", Resource: "adminpolicybasedexternalroutes"}
	ovnkubeAccounts = "ovn-kubernetes"
)

// attempt is a row of the table: who requests what, and whether it is allowed.
type attempt struct {
	who    string
	kind   schema.GroupVersionResource
	object string // "name" or "namespace/name", and ":status" or the like for a subresource
	how    types.PatchType
	body   string // a patch, or an object to create if how is empty
	says   string // part of the refusal; empty if the request is allowed
}

func annotate(key, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
}

func label(key, value string) string {
	return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
}

// podWith returns a pod or, with a kind such as "Deployment", an object that creates such pods.
func podWith(kind, name string, annotations map[string]string) string {
	meta := map[string]any{"labels": map[string]string{"app": name}, "annotations": annotations}
	spec := map[string]any{"containers": []any{map[string]any{"name": "c", "image": "kin.local/agnhost:1"}}}
	template := map[string]any{"metadata": meta, "spec": spec}
	workload := map[string]any{"selector": map[string]any{"matchLabels": map[string]string{"app": name}}, "template": template}
	object := map[string]any{"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": workload}
	switch kind {
	case "Pod":
		meta["name"] = name
		object = map[string]any{"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec}
	case "CronJob":
		spec["restartPolicy"] = "Never"
		object["apiVersion"] = "batch/v1"
		object["spec"] = map[string]any{"schedule": "0 0 1 1 *", "jobTemplate": map[string]any{"spec": map[string]any{"template": template}}}
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // only strings and maps of strings
	}
	return string(text)
}

const (
	subnetsKey   = "k8s.ovn.org/node-subnets"
	hostsKey     = "k8s.ovn.org/host-addresses"
	podKey       = "k8s.ovn.org/pod-networks"
	routingKey   = "k8s.ovn.org/routing-namespaces"
	networkKey   = "k8s.ovn.org/routing-network"
	statusKey    = "k8s.v1.cni.cncf.io/network-status"
	inUseKey     = "k8s.ovn.org/external-gateways-in-use"
	candidateKey = "k8s.ovn.org/egress-assignable"
	hostLabel    = "egress-service.k8s.ovn.org/team-web"
)

// entry returns a node's entry in the status of the EgressIP.
func entry(node, address string) string {
	return fmt.Sprintf(`{"node":%q,"egressIPs":[%q]}`, node, address)
}

func entries(list ...string) string {
	return `{"status":{"programmed":[` + strings.Join(list, ",") + `]}}`
}

func condition(kind, status string) string {
	return fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":"R","message":"m"}]}}`, kind, status)
}

// nodeAgents returns the rows about ovnkube-node.
func nodeAgents() []attempt {
	const agent = "agent" // on ownNode
	own, other := entry(ownNode, "172.18.0.70"), entry(otherNode, "172.18.0.71")
	notMine := "only its own entry"
	return []attempt{
		{agent, nodeKind, ownNode, merge, annotate(hostsKey, `["172.18.0.3"]`), ""},
		{agent, nodeKind, ownNode, merge, annotate("k8s.ovn.org/l3-gateway-config", "{}"), ""},
		{agent, nodeKind, ownNode, merge, annotate("k8s.ovn.org/node-chassis-id", "x"), ""},
		{agent, nodeKind, ownNode, merge, annotate("k8s.ovn.org/node-primary-ifaddr", "{}"), ""},
		{agent, nodeKind, ownNode, merge, annotate("k8s.ovn.org/node-mgmt-port-mac-address", "x"), ""},
		{agent, nodeKind, ownNode, merge, annotate("k8s.ovn.org/gateway-mtu-support", "false"), ""},
		{agent, nodeKind, ownNode, merge, annotate("k8s.ovn.org/node-network-failure", "no uplink"), ""},
		{agent, nodeKind, ownNode, merge, annotate("k8s.ovn.org/egressip-addresses", "[]"), ""},
		{agent, nodeKind, ownNode, merge, annotate("k8s.ovn.org/egress-handover", "true"), ""},
		{"pod's token", nodeKind, ownNode, merge, annotate(hostsKey, `["172.18.0.3"]`), ""},
		{"pod's token", nodeKind, otherNode, merge, annotate(hostsKey, `["172.18.0.3"]`), "another node"},
		{"token without a node", nodeKind, ownNode, merge, annotate(hostsKey, `["172.18.0.3"]`), "must name its node"},
		{"token without a node", egressIPKind, "admission:status", merge, entries(own, other), "must name its node"},
		{agent, nodeKind, otherNode, merge, annotate(hostsKey, `["172.18.0.3"]`), "another node"},
		{agent, nodeKind, ownNode, merge, annotate(subnetsKey, `{"default":["10.244.77.0/24"]}`), "annotation " + subnetsKey},
		{agent, nodeKind, ownNode, merge, `{"metadata":{"annotations":{"` + subnetsKey + `":null}}}`, "annotation " + subnetsKey},
		{agent, nodeKind, ownNode, merge, annotate("k8s.ovn.org/node-gateway-router-lrp-ifaddr", "{}"), "annotation k8s.ovn.org/node-gateway-router-lrp-ifaddr"},
		{agent, nodeKind, ownNode, merge, annotate("example.com/x", "y"), "annotation example.com/x"},
		{agent, nodeKind, ownNode, merge, label(candidateKey, ""), "metadata.labels"},
		{agent, nodeKind, ownNode, merge, label(hostLabel, ""), "metadata.labels"},
		{agent, nodeKind, ownNode, merge, `{"metadata":{"finalizers":["example.com/x"]}}`, "metadata.finalizers"},
		{agent, nodeKind, ownNode, merge, `{"spec":{"unschedulable":true}}`, "spec"},
		{agent, nodeKind, ownNode, merge, `{"spec":{"taints":[{"key":"k8s.ovn.org/egress","value":"drain","effect":"NoSchedule"}]}}`, "spec"},
		{agent, nodeKind, ownNode + ":status", merge, condition("NetworkUnavailable", "True"), `cannot patch resource "nodes/status"`},
		{agent, podKind, teamNamespace + "/" + assignedPod, merge, annotate(podKey, "{}"), `cannot patch resource "pods"`},
		{agent, podKind, teamNamespace + "/" + assignedPod + ":status", merge, annotate(podKey, "{}"), `cannot patch resource "pods/status"`},
		{agent, namespaceKind, teamNamespace, merge, annotate(inUseKey, "1.2.3.4"), `cannot patch resource "namespaces"`},
		{agent, egressIPKind, "admission", merge, `{"spec":{"egressIPs":["172.18.0.99"]}}`, `cannot patch resource "egressips"`},
		{agent, leaseKind, ovnkubeAccounts + "/ovn-kubernetes-master", merge, `{"spec":{"holderIdentity":"me"}}`, `cannot patch resource "leases"`},

		{agent, egressIPKind, "admission:status", merge, entries(entry(ownNode, "172.18.0.72"), other), ""},
		{agent, egressIPKind, "admission:status", merge, entries(other), ""},
		{agent, egressIPKind, "unheld:status", merge, entries(own), ""},
		{agent, egressIPKind, "unheld:status", merge, entries(other), notMine},
		{agent, egressIPKind, "unheld:status", merge, entries(own, other), notMine},
		{agent, egressIPKind, "admission:status", merge, entries(own), notMine},
		{agent, egressIPKind, "admission:status", merge, entries(own, entry(otherNode, "172.18.0.70")), notMine},
		{agent, egressIPKind, "admission:status", merge, entries(own, other, entry(lab.ControlPlane, "172.18.0.70")), notMine},
		{agent, egressIPKind, "crowded:status", merge, entries(own, entry(lab.ControlPlane, "172.18.0.72"), other), notMine},
		{agent, egressIPKind, "admission:status", merge, entries(own, own, other), "Duplicate"},
		{agent, egressIPKind, "admission:status", patch, `[{"op":"remove","path":"/status/programmed"}]`, notMine},
		{agent, egressIPKind, "admission:status", merge, `{"status":{"items":[{"node":"` + ownNode + `","egressIP":"172.18.0.71"}]}}`, "status.items"},
		{agent, egressIPKind, "admission:status", merge, `{"status":{"conditions":[]}}`, "status.conditions"},
		{agent, egressIPKind, "admission:status", merge, `{"status":null}`, "may"},

		{agent, egressServices, teamNamespace + "/mine:status", merge, `{"status":{"programmed":{"host":"` + ownNode + `","digest":"x"}}}`, ""},
		{agent, egressServices, teamNamespace + "/mine:status", merge, `{"status":{"programmed":{"host":"` + lab.ControlPlane + `"}}}`, "may not change status.programmed"},
		{agent, egressServices, teamNamespace + "/mine:status", merge, `{"status":{"host":"` + otherNode + `"}}`, "status.host"},
		{agent, egressServices, teamNamespace + "/theirs:status", merge, `{"status":{"programmed":{"host":"` + ownNode + `"}}}`, "may not change status.programmed"},
		{agent, egressServices, teamNamespace + "/theirs:status", merge, `{"status":{"programmed":null}}`, "may not change status.programmed"},
		{agent, egressServices, teamNamespace + "/theirs:status", merge, `{"status":{"host":"` + ownNode + `","programmed":{"host":"` + ownNode + `"}}}`, "status.host"},
		{agent, egressServices, teamNamespace + "/all:status", merge, `{"status":{"programmed":{"host":"` + ownNode + `","problem":"p"}}}`, ""},
		{agent, egressServices, teamNamespace + "/problem:status", merge, `{"status":{"programmed":{"host":"` + ownNode + `","problem":"p"}}}`, "may not change status.programmed"},
		{agent, egressServices, teamNamespace + "/problem:status", merge, `{"status":{"programmed":null}}`, "may not change status.programmed"},
		{agent, egressServices, teamNamespace + "/mine:status", merge, `{"status":{"conditions":[]}}`, "status.conditions"},
	}
}

// masters returns the rows about ovnkube-master and kubelets.
func masters() []attempt {
	const master, kubelet = "master", "kubelet"
	return []attempt{
		{master, nodeKind, ownNode, merge, annotate(subnetsKey, `{"default":["10.244.77.0/24"]}`), ""},
		{master, nodeKind, ownNode, merge, label(hostLabel, ""), ""},
		{master, nodeKind, ownNode + ":status", types.StrategicMergePatchType, condition("NetworkUnavailable", "True"), ""},
		{master, podKind, teamNamespace + "/" + assignedPod, merge, annotate(podKey, "{}"), ""},
		{master, podKind, teamNamespace + "/" + assignedPod, merge, annotate("k8s.ovn.org/egress-pending", "x"), ""},
		{master, namespaceKind, teamNamespace, merge, annotate(inUseKey, "172.18.0.51"), ""},
		{master, egressIPKind, "admission:status", merge, `{"status":{"items":[]}}`, ""},
		{master, egressServices, teamNamespace + "/mine:status", merge, `{"status":{"host":"` + otherNode + `"}}`, ""},
		{master, externalRoutes, "admission:status", merge, `{"status":{"pods":1}}`, ""},
		{master, nodeKind, ownNode, merge, annotate("example.com/x", "y"), "annotation example.com/x"},
		{master, nodeKind, ownNode, merge, label(candidateKey, ""), "label " + candidateKey},
		{master, nodeKind, ownNode, merge, label("node-role.kubernetes.io/control-plane", ""), "label node-role"},
		{master, nodeKind, ownNode, merge, `{"spec":{"unschedulable":true}}`, "spec"},
		{master, nodeKind, ownNode, merge, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`, "spec"},
		{master, nodeKind, ownNode + ":status", types.StrategicMergePatchType, condition("Ready", "True"), "status.conditions"},
		{master, nodeKind, ownNode + ":status", types.StrategicMergePatchType, `{"status":{"capacity":{"cpu":"1000"}}}`, "status.capacity"},
		{master, nodeKind, ownNode + ":status", types.StrategicMergePatchType, label(candidateKey, ""), "label " + candidateKey},
		{master, podKind, teamNamespace + "/" + assignedPod, merge, annotate("example.com/x", "y"), "annotation example.com/x"},
		{master, podKind, teamNamespace + "/" + assignedPod, merge, label("app", "other"), "label app"},
		{master, podKind, teamNamespace + "/" + assignedPod, patch, `[{"op":"replace","path":"/spec/containers/0/image","value":"evil"}]`, "spec"},
		{master, podKind, teamNamespace + "/" + assignedPod, merge, annotate(routingKey, othersNamespace), "annotation " + routingKey},
		{master, podKind, teamNamespace + "/x", "", podWith("Pod", "x", nil), `cannot create resource "pods"`},
		{master, namespaceKind, teamNamespace, merge, annotate("k8s.ovn.org/routing-external-gws", "1.2.3.4"), "annotation k8s.ovn.org/routing-external-gws"},
		{master, namespaceKind, teamNamespace, merge, label("pod-security.kubernetes.io/enforce", "privileged"), "label pod-security"},
		{master, egressIPKind, "admission", merge, `{"spec":{"egressIPs":["172.18.0.99"]}}`, `cannot patch resource "egressips"`},
		{master, secretKind, "kube-system/x", merge, `{}`, `cannot patch resource "secrets"`},
		{master, leaseKind, ovnkubeAccounts + "/other", "", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"other"}}`, ""},
		{master, leaseKind, "kube-system/kube-scheduler", "", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"kube-scheduler"}}`, `cannot create resource "leases"`},

		{kubelet, nodeKind, ownNode + ":status", types.StrategicMergePatchType, condition("Ready", "True"), ""},
		{kubelet, nodeKind, ownNode, merge, annotate("volumes.kubernetes.io/controller-managed-attach-detach", "true"), ""},
		{kubelet, nodeKind, ownNode, merge, label("example.com/zone", "a"), ""},
		{kubelet, nodeKind, ownNode, merge, annotate(subnetsKey, `{"default":["10.244.77.0/32"]}`), "annotation " + subnetsKey},
		{kubelet, nodeKind, ownNode, merge, `{"metadata":{"annotations":{"` + subnetsKey + `":null}}}`, "annotation " + subnetsKey},
		{kubelet, nodeKind, ownNode + ":status", merge, annotate(hostsKey, `["172.18.0.70"]`), "annotation " + hostsKey},
		{kubelet, nodeKind, ownNode, merge, label(candidateKey, ""), "label " + candidateKey},
		{kubelet, nodeKind, ownNode, merge, label(hostLabel, ""), "label " + hostLabel},
		{"new kubelet", nodeKind, "newcomer", "", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"newcomer","labels":{"` + candidateKey + `":""}}}`, ""},
		{"new kubelet", nodeKind, "newcomer", "", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"newcomer","labels":{"` + hostLabel + `":""}}}`, "label " + hostLabel},
		{"new kubelet", nodeKind, "newcomer", "", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"newcomer","annotations":{"` + hostsKey + `":"[]"}}}`, "annotation " + hostsKey},
	}
}

// users returns the rows about users of namespaces: alice edits team, carol edits team and may
// change the namespace carols, dave may write the status of pods; the rest is Kubernetes itself.
func users() []attempt {
	const (
		alice, carol, admin, multus = "alice", "carol", "administrator", "multus"
		replicaSets                 = "system:serviceaccount:kube-system:replicaset-controller"
		refusal                     = "may not patch"
		network                     = `[{"name":"sriov1","ips":["172.18.0.66"]}]`
	)
	inTeam := func(name string) string { return teamNamespace + "/" + name }
	gateway := func(kind, namespaces string) string {
		return podWith(kind, "x", map[string]string{routingKey: namespaces, networkKey: "sriov1", statusKey: network})
	}
	return []attempt{
		{alice, podKind, inTeam("x"), "", podWith("Pod", "x", nil), ""},
		{alice, podKind, inTeam("x"), "", podWith("Pod", "x", map[string]string{statusKey: network}), ""},
		{alice, podKind, inTeam("x"), "", podWith("Pod", "x", map[string]string{routingKey: " , "}), ""},
		{alice, podKind, inTeam("x"), "", podWith("Pod", "x", map[string]string{podKey: `{"default":{}}`}), podKey},
		{alice, podKind, inTeam("x"), "", podWith("Pod", "x", map[string]string{"k8s.ovn.org/egress-pending": "e"}), "egress-pending"},
		{alice, podKind, inTeam(assignedPod), merge, label("tier", "x"), ""},
		{alice, podKind, inTeam(assignedPod), merge, annotate(podKey, "{}"), podKey},
		{alice, podKind, inTeam(assignedPod), merge, `{"metadata":{"annotations":{"` + podKey + `":null}}}`, podKey},
		{admin, podKind, inTeam(assignedPod), merge, annotate(podKey, "{}"), ""},
		{"kubelet", podKind, inTeam(assignedPod) + ":status", merge, annotate(podKey, "{}"), podKey},

		{alice, podKind, inTeam("x"), "", gateway("Pod", "kube-system"), refusal},
		{alice, podKind, inTeam("x"), "", gateway("Pod", teamNamespace), refusal},
		{alice, podKind, inTeam("x"), "", gateway("Pod", teamNamespace+", "+othersNamespace), refusal},
		{alice, deploymentKind, inTeam("x"), "", gateway("Deployment", "kube-system"), refusal},
		{alice, replicaSetKind, inTeam("x"), "", gateway("ReplicaSet", "kube-system"), refusal},
		{alice, cronJobKind, inTeam("x"), "", gateway("CronJob", "kube-system"), refusal},
		{alice, deploymentKind, inTeam("x"), "", podWith("Deployment", "x", nil), ""},
		{alice, cronJobKind, inTeam("x"), "", podWith("CronJob", "x", nil), ""},
		{admin, podKind, inTeam("x"), "", gateway("Pod", "kube-system,"+othersNamespace), ""},
		{admin, podKind, inTeam("x"), "", gateway("Pod", "a,b,c,d,e,f,g,h,i,j,k"), ""},
		{admin, deploymentKind, inTeam("x"), "", gateway("Deployment", othersNamespace), ""},
		{replicaSets, podKind, inTeam("x"), "", gateway("Pod", othersNamespace), ""},
		{replicaSets, podKind, inTeam("x"), "", podWith("Pod", "x", map[string]string{podKey: `{"default":{}}`}), podKey},
		{carol, podKind, inTeam("x"), "", gateway("Pod", carolsNamespace), ""},
		{carol, podKind, inTeam("x"), "", gateway("Pod", carolsNamespace+strings.Repeat(", "+carolsNamespace, 7)), ""},
		{carol, podKind, inTeam("x"), "", gateway("Pod", carolsNamespace+strings.Repeat(", "+carolsNamespace, 8)), "more than 8"},
		{carol, podKind, inTeam("x"), "", gateway("Pod", carolsNamespace+strings.Repeat(", "+carolsNamespace, 6)+","+othersNamespace), refusal},
		{carol, podKind, inTeam("x"), "", gateway("Pod", othersNamespace+","+carolsNamespace), refusal},
		{carol, deploymentKind, inTeam("x"), "", gateway("Deployment", carolsNamespace), ""},

		{alice, podKind, inTeam(gatewayPod), merge, label("tier", "x"), ""},
		{alice, podKind, inTeam(gatewayPod), merge, `{"metadata":{"annotations":{"` + routingKey + `":null}}}`, ""},
		{alice, podKind, inTeam(gatewayPod), merge, annotate(routingKey, "kube-system"), refusal},
		{alice, podKind, inTeam(gatewayPod), merge, annotate(networkKey, "other"), refusal},
		{alice, podKind, inTeam(gatewayPod), merge, annotate("k8s.ovn.org/bfd-enabled", "true"), refusal},
		{alice, podKind, inTeam(gatewayPod), merge, annotate(statusKey, `[{"name":"sriov1","ips":["172.18.0.67"]}]`), refusal},
		{alice, podKind, inTeam(assignedPod), merge, annotate(routingKey, "kube-system"), refusal},
		{multus, podKind, inTeam(gatewayPod) + ":status", merge, annotate(statusKey, network), ""},
		{multus, podKind, inTeam(gatewayPod), merge, annotate(statusKey, network), ""},
		{multus, podKind, inTeam(gatewayPod) + ":status", merge, annotate(routingKey, "kube-system"), refusal},
	}
}

// tryAdmission creates the objects of the table with a client that may do everything, and tries
// every row.
func tryAdmission(t *testing.T, admin *rest.Config) {
	ctx := t.Context()
	kube, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	prepareAdmission(t, client)
	awaitRights(ctx, t, kube)
	people := askers(ctx, t, admin, kube)
	awaitPolicies(ctx, t, people)
	for part, rows := range map[string][]attempt{"NodeAgents": nodeAgents(), "Masters": masters(), "Users": users()} {
		t.Run(part, func(t *testing.T) {
			for _, row := range rows {
				if people[row.who] == nil {
					t.Fatalf("nobody is called %q", row.who)
				}
				err := row.send(ctx, people[row.who])
				switch {
				case row.says == "" && err != nil:
					t.Errorf("%s on %s %s %s: %v", row.who, row.kind.Resource, row.object, row.body, err)
				case row.says != "" && err == nil:
					t.Errorf("%s on %s %s %s: was done", row.who, row.kind.Resource, row.object, row.body)
				case row.says != "" && !strings.Contains(err.Error(), row.says):
					t.Errorf("%s on %s %s %s: refused with %q, want %q", row.who, row.kind.Resource, row.object, row.body, err, row.says)
				case row.says != "" && !apierrors.IsForbidden(err) && row.says != "Duplicate":
					t.Errorf("%s on %s %s %s: %v is not Forbidden", row.who, row.kind.Resource, row.object, row.body, err)
				}
			}
		})
	}
}

// send sends the request as a dry run.
func (r attempt) send(ctx context.Context, client dynamic.Interface) error {
	object, sub, _ := strings.Cut(r.object, ":")
	namespace, name, namespaced := strings.Cut(object, "/")
	if !namespaced {
		namespace, name = "", object
	}
	var subresources []string
	if sub != "" {
		subresources = []string{sub}
	}
	to := client.Resource(r.kind).Namespace(namespace)
	dry := []string{metav1.DryRunAll}
	if r.how != "" {
		_, err := to.Patch(ctx, name, r.how, []byte(r.body), metav1.PatchOptions{DryRun: dry}, subresources...)
		return err
	}
	var u unstructured.Unstructured
	if err := json.Unmarshal([]byte(r.body), &u.Object); err != nil {
		return err
	}
	_, err := to.Create(ctx, &u, metav1.CreateOptions{DryRun: dry}, subresources...)
	return err
}

// prepareAdmission creates the objects of the table.
func prepareAdmission(t *testing.T, client dynamic.Interface) {
	t.Helper()
	ctx := t.Context()
	create := func(kind schema.GroupVersionResource, namespace, text string) {
		t.Helper()
		var u unstructured.Unstructured
		if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		status := u.Object["status"]
		api := client.Resource(kind).Namespace(namespace)
		made, err := api.Create(ctx, &u, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := api.Delete(context.WithoutCancel(ctx), made.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
				t.Error(err)
			}
		})
		if status == nil {
			return
		}
		made.Object["status"] = status
		if _, err := api.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range []string{teamNamespace, othersNamespace, carolsNamespace} {
		create(namespaceKind, "", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, ns))
		account := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
		// The service account controller may have created it already.
		if _, err := client.Resource(account).Namespace(ns).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default"},
		}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	rbac := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
	}
	const header = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":%q,"metadata":{"name":%q},`
	role := func(name, group, resource, verbs string) string {
		return fmt.Sprintf(header+`"rules":[{"apiGroups":[%q],"resources":[%s],"verbs":[%s]}]}`, "Role", name, group, resource, verbs)
	}
	bind := func(kind, name, user string) string {
		return fmt.Sprintf(header+`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},
			"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, "RoleBinding", name+"-"+user, kind, name, user)
	}
	for _, user := range []string{"alice", "carol"} {
		create(rbac("rolebindings"), teamNamespace, bind("ClusterRole", "edit", user))
	}
	create(rbac("roles"), carolsNamespace, role("owner", "", `"namespaces"`, `"patch"`))
	create(rbac("rolebindings"), carolsNamespace, bind("Role", "owner", "carol"))
	create(rbac("roles"), teamNamespace, role("attach", "", `"pods","pods/status"`, `"get","update","patch"`))
	create(rbac("rolebindings"), teamNamespace, bind("Role", "attach", "multus"))

	assigned := podWith("Pod", assignedPod, map[string]string{podKey: `{"default":{"ip_addresses":["10.244.1.5/24"]}}`})
	create(podKind, teamNamespace, strings.Replace(assigned, `"spec":{`, fmt.Sprintf(`"spec":{"nodeName":%q,`, ownNode), 1))
	create(podKind, teamNamespace, podWith("Pod", gatewayPod, map[string]string{routingKey: othersNamespace, networkKey: "sriov1"}))
	egressIP := func(name string, entries ...string) {
		create(egressIPKind, "", fmt.Sprintf(`{"apiVersion":"k8s.ovn.org/v1","kind":"EgressIP","metadata":{"name":%q},
			"spec":{"egressIPs":["172.18.0.70"],"namespaceSelector":{"matchLabels":{"none":"here"}}},
			"status":{"items":[{"node":%q,"egressIP":"172.18.0.70"}],
			"conditions":[{"type":"Assigned","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}],
			"programmed":[%s]}}`, name, ownNode, strings.Join(entries, ",")))
	}
	egressIP("admission", entry(ownNode, "172.18.0.70"), entry(otherNode, "172.18.0.71"))
	egressIP("crowded", entry(ownNode, "172.18.0.70"), entry(otherNode, "172.18.0.71"), entry(lab.ControlPlane, "172.18.0.72"))
	egressIP("unheld")
	for name, status := range map[string]string{
		"mine":    fmt.Sprintf(`{"host":%q,"programmed":{"host":%q}}`, ownNode, otherNode),
		"theirs":  fmt.Sprintf(`{"host":%q,"programmed":{"host":%q}}`, otherNode, otherNode),
		"all":     `{"host":"ALL"}`,
		"problem": fmt.Sprintf(`{"host":"ALL","programmed":{"host":%q,"problem":"p"}}`, otherNode),
	} {
		status = strings.TrimSuffix(status, "}") + `,"conditions":[{"type":"Assigned","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`
		create(egressServices, teamNamespace, fmt.Sprintf(`{"apiVersion":"k8s.ovn.org/v1","kind":"EgressService","metadata":{"name":%q},"spec":{},"status":%s}`, name, status))
	}
	create(externalRoutes, "", `{"apiVersion":"k8s.ovn.org/v1","kind":"AdminPolicyBasedExternalRoute","metadata":{"name":"admission"},
		"spec":{"from":{"namespaceSelector":{"matchLabels":{"none":"here"}}},"nextHops":{"static":[{"ip":"172.18.0.51"}]}}}`)
}

// awaitRights waits until the API server authorizes what the bindings of the table grant: its
// authorizer watches roles and bindings, and sees them some time after the requests that create
// them are answered.
func awaitRights(ctx context.Context, t *testing.T, kube kubernetes.Interface) {
	t.Helper()
	for _, right := range []struct{ user, namespace, verb, resource string }{
		{"alice", teamNamespace, "create", "pods"},
		{"carol", teamNamespace, "create", "pods"},
		{"carol", carolsNamespace, "patch", "namespaces"},
		{"multus", teamNamespace, "patch", "pods"},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: right.user, Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: right.namespace, Verb: right.verb, Resource: right.resource},
		}}
		what := fmt.Sprintf("the right of %s to %s %s in namespace %s", right.user, right.verb, right.resource, right.namespace)
		err := lab.Until(ctx, 20*time.Second, what, func(ctx context.Context) error {
			answer, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if !answer.Status.Allowed {
				return fmt.Errorf("the API server does not authorize it: %s", answer.Status.Reason)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// awaitPolicies waits until the API server enforces each policy: it watches these, too.
func awaitPolicies(ctx context.Context, t *testing.T, people map[string]dynamic.Interface) {
	t.Helper()
	for policy, refused := range map[string]attempt{
		"ovnkube-node":   {"agent", nodeKind, ownNode, merge, annotate("example.com/x", "y"), "annotation example.com/x"},
		"ovnkube-master": {"master", nodeKind, ownNode, merge, annotate("example.com/x", "y"), "annotation example.com/x"},
		"pod-networks":   {"alice", podKind, teamNamespace + "/" + assignedPod, merge, annotate(podKey, "{}"), podKey},
		"kubelet":        {"kubelet", nodeKind, ownNode, merge, label(candidateKey, ""), "label " + candidateKey},
		"gateway-pods":   {"alice", podKind, teamNamespace + "/" + gatewayPod, merge, annotate(routingKey, "kube-system"), "may not patch"},
	} {
		err := lab.Until(ctx, 20*time.Second, "the policy "+policy+" to be enforced", func(ctx context.Context) error {
			err := refused.send(ctx, people[refused.who])
			switch {
			case err == nil:
				return fmt.Errorf("%s on %s: was done, want a refusal with %q", refused.who, refused.object, refused.says)
			case !strings.Contains(err.Error(), refused.says):
				return fmt.Errorf("want a refusal with %q: %w", refused.says, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// askers returns the clients of everybody in the table: ovnkube's service accounts with their own
// tokens, all others by impersonation as the administrator.
func askers(ctx context.Context, t *testing.T, admin *rest.Config, kube kubernetes.Interface) map[string]dynamic.Interface {
	t.Helper()
	people := map[string]dynamic.Interface{}
	add := func(who string, config *rest.Config) {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		people[who] = client
	}
	add("administrator", admin)
	for _, user := range []string{"alice", "carol", "multus", "system:serviceaccount:kube-system:replicaset-controller"} {
		config := rest.CopyConfig(admin)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		add(user, config)
	}
	for who, node := range map[string]string{"kubelet": ownNode, "new kubelet": "newcomer"} {
		config := rest.CopyConfig(admin)
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
		add(who, config)
	}
	node, err := kube.CoreV1().Nodes().Get(ctx, ownNode, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	agent := runAgent(ctx, t, kube)
	for who, token := range map[string]struct {
		account string
		bound   *authenticationv1.BoundObjectReference
	}{
		"agent":                {"ovnkube-node", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		"pod's token":          {"ovnkube-node", &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: agent.Name, UID: agent.UID}},
		"token without a node": {"ovnkube-node", nil},
		"master":               {"ovnkube-master", nil},
	} {
		review, err := kube.CoreV1().ServiceAccounts(ovnkubeAccounts).CreateToken(ctx, token.account,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: token.bound}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config := rest.AnonymousClientConfig(admin)
		config.BearerToken, config.QPS, config.Burst = review.Status.Token, admin.QPS, admin.Burst
		add(who, config)
	}
	return people
}

// runAgent creates a pod as the DaemonSet does; it need not run to have a token.
func runAgent(ctx context.Context, t *testing.T, kube kubernetes.Interface) *corev1.Pod {
	t.Helper()
	pod, err := kube.CoreV1().Pods(ovnkubeAccounts).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: corev1.PodSpec{
			NodeName: ownNode, HostNetwork: true, ServiceAccountName: "ovnkube-node",
			Containers: []corev1.Container{{Name: "c", Image: "kin.local/agnhost:1", Args: []string{"pause"}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.CoreV1().Pods(ovnkubeAccounts).Delete(context.WithoutCancel(ctx), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Error(err)
		}
	})
	return pod
}
