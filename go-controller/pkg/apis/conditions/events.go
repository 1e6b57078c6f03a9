package conditions

import (
	"fmt"
	"io"
	"slices"
)

// Event is a reason of Events about objects that are not of our kinds. Those about ours
// have the reasons of their conditions.
type Event struct {
	Kind            string // of the object
	Reason          string
	Meaning, Remedy string
}

var events = []Event{
	{"Node", "AnnotationRefused", "an annotation of the node is not valid, or takes what another node has; the value before stays in force", "do not write annotations `k8s.ovn.org/*` of nodes"},
	{"Node", "AddressRefused", "the annotation of the node asks for a subnet or an address that it cannot have; it is given another one", "nothing, unless it comes back"},
	{"Node", "NoSubnetAvailable", "no pod subnet is left for the node; its condition `NetworkUnavailable` says so, too", "delete nodes that are not there any more, or give the cluster more subnets"},
	{"Node", "NoJoinAddressAvailable", "no address of the join subnet is left for the node; its condition `NetworkUnavailable` says so, too", "delete nodes that are not there any more, or configure a larger join subnet"},
	{"Node", "ReconcileFailing", "an object that the message names has kept failing on this node for half a minute; the others are served", "mend what the message says; if it names nothing, see the log of ovnkube on that node"},
	{"Node", "WaitingForAPIServer", "the API server has not answered what an informer asks for, for half a minute", "see that the API server runs, that the definitions of our kinds are installed, and that the account of ovnkube may list the kind"},
	{"Node", "WaitingForDatabase", "there has been no connection to a database for half a minute", "see that the database runs, and the address and the certificates of ovnkube in [configuration](configuration.md)"},
	{"Node", "WaitingForDaemon", "`ovs-vswitchd` or `ovn-controller` of the node has not answered for half a minute; what is in force stays, nothing new comes", "see the log of the daemon and start it again"},
	{"Node", "WaitingForNetwork", "the network of the node has lacked for half a minute what the message names; new pods wait for it where the node has not been ready since its start", "see that the kubelet has registered the node, that a master leads, and that ovn-controller runs, whichever the message names"},
	{"Node", "WaitingForStart", "an object that was there at the start has not come to an end for half a minute; after a minute ovnkube goes on without it", "see the log of ovnkube on that node about what the message names"},
	{"Pod", "AddressRefused", "the annotation of the pod asks for an address that it cannot have", "do not write `k8s.ovn.org/pod-networks`"},
	{"Pod", "NoAddressAvailable", "the subnet of the node has no address left", "move pods to other nodes, or give nodes larger subnets"},
	{"Pod", "GatewayRefused", "the pod is no gateway for others: its annotations are not valid", "correct what the message says"},
	{"Namespace", "GatewayRefused", "an external gateway in the annotation of the namespace is not used, or is the address of a node, whose own pods cannot use it", "correct what the message says"},
	{"Service", "HealthPortInUse", "a process of a node listens on the `healthCheckNodePort`", "stop it, or make the Service anew"},
	{"Service", "HostPortReserved", "a port or an address is one that nodes need for themselves; it is not served", "take another one"},
	{"Service", "PortTaken", "another Service has the port", "take another one"},
	{"Service", "InvalidSourceRange", "an entry of `loadBalancerSourceRanges` is not valid", "correct it"},
	{"Service", "SessionAffinityTimeout", "the timeout of the session affinity is longer than OVN can have", "choose a shorter one"},
}

// KnownEvent tells whether the table has a reason of Events about a kind.
func KnownEvent(kind, reason string) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == kind && e.Reason == reason })
}

// AllEvents returns the table.
func AllEvents() []Event { return slices.Clone(events) }

const eventsHead = `
## Events

Events about an EgressService, EgressIP or AdminPolicyBasedExternalRoute have the reasons above, besides those that tell of a move. Addresses of a Service that are
not served have the reasons of ` + "`IngressRefused`" + `. These are the others; those about a node are of ovnkube on that node, or of a master on it. A pod that cannot be attached has Events
` + "`FailedCreatePodSandBox`" + ` of the kubelet, whose messages say what ovnkube waits for.

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
