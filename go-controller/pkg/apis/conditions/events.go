package conditions

import (
	"fmt"
	"io"
	"slices"
)

// Event is a reason of Events about objects of kinds other than ovnkube's own. Events about ovnkube's own kinds
// have the reasons of their conditions.
type Event struct {
	Kind            string // of the object
	Reason          string
	Meaning, Remedy string
}

var events = []Event{
	{"Node", "AnnotationRefused", "an annotation of the node is not valid, or claims what belongs to another node; the previous value stays in force. If the node itself keeps writing such a `node-chassis-id`, `node-mgmt-port-mac-address` or `l3-gateway-config`, its condition `NetworkUnavailable` is True for the same reason", "do not write annotations `k8s.ovn.org/*` of nodes. Nodes with the same `node-chassis-id` are copies of one machine: give Open vSwitch on each its own `external_ids:system-id`"},
	{"Node", "AddressRefused", "the annotation of the node requests a subnet or an address that the node cannot have; it gets another one", "none, unless the Event recurs"},
	{"Node", "NoSubnetAvailable", "no pod subnet is left for the node; its condition `NetworkUnavailable` is True for the same reason", "delete nodes that no longer exist, or give the cluster more subnets"},
	{"Node", "NoJoinAddressAvailable", "no address of the join subnet is left for the node; its condition `NetworkUnavailable` is True for the same reason", "delete nodes that no longer exist, or configure a larger join subnet"},
	{"Node", "ReconcileFailing", "the object that the message names has been failing on this node for 30 seconds; all others are served. If the message begins with `gateway`, the node cannot connect itself to the cluster network, for example because its uplink was replaced by another network card; its condition `NetworkUnavailable` is then True with reason `NetworkFailing` and names the same error", "correct what the message names; otherwise see the log of ovnkube on that node"},
	{"Node", "WaitingForAPIServer", "the API server has not answered an informer's requests for 30 seconds", "check that the API server runs, that the CustomResourceDefinitions are installed, and that the ServiceAccount of ovnkube may list the kind"},
	{"Node", "WaitingForDatabase", "there has been no connection to a database for 30 seconds", "check that the database runs, and the address and certificates of ovnkube in its [configuration](configuration.md)"},
	{"Node", "WaitingForDaemon", "`ovs-vswitchd` or `ovn-controller` on the node has not answered for 30 seconds; what is in force stays in force, but changes do not take effect", "see the log of the daemon and restart it"},
	{"Node", "WaitingForNetwork", "for 30 seconds the network of the node has lacked what the message names; new pods wait for it if the node has not been ready since ovnkube started", "depending on the message, check that the kubelet has registered the node, that a master leads, or that ovn-controller runs"},
	{"Node", "WaitingForStart", "an object that existed at start-up has not been processed for 30 seconds; after a minute ovnkube continues without it", "see what the log of ovnkube on that node says about the object in the message"},
	{"Pod", "AddressRefused", "the annotation of the pod requests an address that the pod cannot have", "do not write `k8s.ovn.org/pod-networks`"},
	{"Pod", "NoAddressAvailable", "the subnet of the node has no address left", "move pods to other nodes, or give nodes larger subnets"},
	{"Pod", "GatewayRefused", "the pod is no gateway for others: its annotations are not valid", "correct what the message names"},
	{"Namespace", "GatewayRefused", "an external gateway in the annotation of the namespace is not used, or is the address of a node, whose own pods cannot use it", "correct what the message names"},
	{"Service", "HealthPortInUse", "a process of a node listens on the `healthCheckNodePort`", "stop it, or re-create the Service"},
	{"Service", "HostPortReserved", "a port or an address is reserved for the nodes; it is not served", "use another one"},
	{"Service", "PortTaken", "another Service has the port", "use another one"},
	{"Service", "InvalidSourceRange", "an entry of `loadBalancerSourceRanges` is not valid", "correct it"},
	{"Secret", "AuthorityLost", "the Secret of a certificate authority is gone, but the Secrets that the message names depend on it. Neither nodes nor the control plane get certificates meanwhile, and existing ones stay valid", "restore the Secret from a backup; [if there is none](certificates.md#a-lost-authority), begin with a new authority"},
	{"Secret", "AuthorityNotYetValid", "a certificate authority is not valid yet: the clock of the node of `ovnkube-pki` is behind, or it was ahead when the authority was created. Nothing is issued or renewed, and certificates of this authority are refused by everybody whose clock says the same", "if the clock is wrong, set it. If it was, begin with [new authorities](certificates.md#a-clock-that-was-wrong)"},
	{"Service", "SessionAffinityTimeout", "the timeout of the session affinity is longer than OVN supports", "use a shorter one"},
}

// KnownEvent reports whether the table has a reason of Events for a kind.
func KnownEvent(kind, reason string) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == kind && e.Reason == reason })
}

// AllEvents returns the table.
func AllEvents() []Event { return slices.Clone(events) }

const eventsHead = `
## Events

Events about an EgressService, EgressIP or AdminPolicyBasedExternalRoute have the reasons above; Events about a move are an exception. Addresses of a Service that are
not served have the reasons of ` + "`IngressRefused`" + `. The following table lists the others. Events about a node come from ovnkube on that node, or from a master that runs there; those about Secrets come from ` + "`" + `ovnkube-pki` + "`" + `. If a pod cannot be attached, the kubelet writes
` + "`FailedCreatePodSandBox`" + `; the message says what ovnkube waits for.

| object | reason | meaning | remedy |
| --- | --- | --- | --- |
`

func eventsMarkdown(w io.Writer) error {
	if _, err := io.WriteString(w, eventsHead); err != nil {
		return err
	}
	for _, e := range events {
		if _, err := fmt.Fprintf(w, "| %s | `%s` | %s | %s |\n", e.Kind, e.Reason, e.Meaning, e.Remedy); err != nil {
			return err
		}
	}
	return nil
}
