package conditions

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

// Remedies that several entries have.
const (
	fixSelector  = "correct the selector"
	otherAddress = "take another address"
)

var table = []Entry{
	{EgressService, Assigned, yes, "HostAssigned", "a node serves the egress traffic; it is `status.host`", ""},
	{EgressService, Assigned, yes, "EveryNode", "every node serves its own pods (`sourceIPBy: Network`)", ""},
	{EgressService, Assigned, no, "ServiceNotFound", "there is no Service of this name in the namespace", "create the Service, or delete the EgressService"},
	{EgressService, Assigned, no, "ServiceNotLoadBalancer", "the Service is of another type", "make it `type: LoadBalancer`"},
	{EgressService, Assigned, no, "NoIngressIP", "the Service has no address in `status.loadBalancer.ingress` that can be used", "see why the load balancer gives it none; the message names those that are refused"},
	{EgressService, Assigned, no, "InvalidNodeSelector", "`nodeSelector` is not valid", fixSelector},
	{EgressService, Assigned, no, "UnsupportedSourceIP", "`sourceIPBy` has an unknown value", "use `LoadBalancerIP` or `Network`"},
	{EgressService, Assigned, no, "SharedGatewayMode", "`sourceIPBy: Network` in shared gateway mode", "use local gateway mode, or `LoadBalancerIP`"},
	{EgressService, Assigned, no, "InvalidNetwork", "`network` is not a name or number of a routing table", "correct it"},
	{EgressService, Assigned, no, "LabelTooLong", "the label that names the host's node would be too long", "use a shorter name for the Service or its namespace"},
	{EgressService, Assigned, no, "LabelTaken", "an older EgressService has the same label", "use another name"},
	{EgressService, Assigned, no, "NoNode", "no node can be the host; the message says of each why", "label, uncordon or repair a node; with `externalTrafficPolicy: Local`, see that an endpoint is ready"},
	{EgressService, Programmed, yes, "Programmed", "the host's rules and the policies that lead there are in force", ""},
	{EgressService, Programmed, yes, "EveryNode", "every node programs its own rules", ""},
	{EgressService, Programmed, no, "NotAssigned", "there is no host", "see `Assigned`"},
	{EgressService, Programmed, no, "WaitingForHost", "the host has not said yet that its rules are in force", "if it stays: see the log of ovnkube on that node"},
	{EgressService, Programmed, no, "NotAcknowledged", "the host can be reached, but has not said in time that its rules are in force, and no other node can be the host", "start ovnkube on that node again, or let another node be the host"},
	{EgressService, Programmed, no, "NetworkNotFound", "a node has no such routing table, or none with a route; its traffic takes the usual routes", "add the table or its routes on that node"},
	{EgressService, Conflict, no, "NoConflict", "no other EgressService has its pods", ""},
	{EgressService, Conflict, yes, "OlderEgressService", "older EgressServices have some of its pods, which leave as these say", "let one Service select each pod"},
	{EgressService, IngressRefused, yes, "InvalidAddress", "an ingress address is none that traffic can have", "see what writes the Service's status"},
	{EgressService, IngressRefused, yes, "InternalAddress", "an ingress address is in a range of the cluster", otherAddress},
	{EgressService, IngressRefused, yes, "NodeAddress", "an ingress address is that of a node", otherAddress},
	{EgressService, IngressRefused, yes, "APIServerAddress", "an ingress address is that of the API server", otherAddress},
	{EgressService, IngressRefused, yes, "GatewayAddress", "an ingress address is that of a node's gateway", otherAddress},
	{EgressService, IngressRefused, yes, "AddressTaken", "an ingress address belongs to an EgressIP", otherAddress},
	{EgressService, IngressRefused, yes, "ProxyMode", "an ingress address has `ipMode: Proxy`: packets do not arrive with it", "use a load balancer with `ipMode: VIP`"},

	{EgressIP, Assigned, yes, "Assigned", "every address has a node", ""},
	{EgressIP, Assigned, no, "InvalidSelector", "`namespaceSelector` or `podSelector` is not valid", fixSelector},
	{EgressIP, Assigned, no, "InvalidAddress", "an address is none that traffic can have on a network", "correct it"},
	{EgressIP, Assigned, no, "InternalAddress", "an address is in a range of the cluster", otherAddress},
	{EgressIP, Assigned, no, "NodeAddress", "an address is that of a node", otherAddress},
	{EgressIP, Assigned, no, "GatewayAddress", "an address is that of a node's gateway", otherAddress},
	{EgressIP, Assigned, no, "APIServerAddress", "an address is that of the API server", otherAddress},
	{EgressIP, Assigned, no, "AddressTaken", "an address belongs to an older EgressIP or to a Service", otherAddress},
	{EgressIP, Assigned, no, "NoNode", "no node can hold an address; the message says of each why", "label a node in the network of the address with `k8s.ovn.org/egress-assignable`, uncordon or repair it"},
	{EgressIP, Programmed, yes, "Programmed", "the nodes hold the addresses and the policies that lead there are in force", ""},
	{EgressIP, Programmed, no, "NotAssigned", "no address has a node", "see `Assigned`"},
	{EgressIP, Programmed, no, "NodeProblem", "a node cannot hold its address; the message has its words", "mend what the message says on that node"},
	{EgressIP, Programmed, no, "NotAcknowledged", "a node that can be reached does not do what it was assigned; the message names it", "start ovnkube on that node again, or switch the node off and delete it"},
	{EgressIP, Programmed, no, "WaitingForNode", "a node does not hold its address yet, or another one holds it still", "if it stays: see the log of ovnkube on that node"},
	{EgressIP, Programmed, no, "WaitingForPolicies", "policies or translations of some pods are not in force yet", "if it stays: see the log of the master"},
	{EgressIP, Conflict, no, "NoConflict", "no other EgressIP has its addresses or pods", ""},
	{EgressIP, Conflict, yes, "OlderEgressIP", "older EgressIPs have some of its addresses or pods", "let one EgressIP ask for each address and select each pod"},
	{EgressIP, Conflict, yes, "AddressInUse", "a node or a Service says that it has one of the addresses", "find out whether the address is in use there; " + otherAddress + " if it is"},

	{AdminPolicyBasedExternalRoute, Ready, yes, "Applied", "the pods of the selected namespaces use the hops", ""},
	{AdminPolicyBasedExternalRoute, Ready, no, "InvalidSelector", "`from.namespaceSelector` is not valid", fixSelector},
	{AdminPolicyBasedExternalRoute, Ready, no, "NoNamespaceSelected", "`from.namespaceSelector` selects no namespace", "label a namespace"},
	{AdminPolicyBasedExternalRoute, Ready, no, "NoHop", "there is no hop that can be used; traffic leaves as without the policy", "see `HopsValid`"},
	{AdminPolicyBasedExternalRoute, Ready, no, "WriteFailed", "the routes of some nodes could not be written; it is tried again", "if it stays: see the log of the master and the northbound database"},
	{AdminPolicyBasedExternalRoute, HopsValid, yes, "AllValid", "every hop can be used", ""},
	{AdminPolicyBasedExternalRoute, HopsValid, no, "InvalidHop", "some hops cannot be used, or not by all pods; the others are", "correct those that the message names"},
	{AdminPolicyBasedExternalRoute, HopsValid, no, "InvalidSelector", "a selector of a dynamic hop is not valid", fixSelector},
	{AdminPolicyBasedExternalRoute, HopsValid, no, "NoGatewayPodSelected", "a dynamic hop selects no pod that is a gateway, runs and is ready", "see the labels and the readiness of the gateway pods"},
	{AdminPolicyBasedExternalRoute, Conflict, no, "NoConflict", "no other policy decides about its hops", ""},
	{AdminPolicyBasedExternalRoute, Conflict, yes, "DifferentOptions", "an older policy decides about the options of a hop", "give the hop the same options in all policies"},
	{AdminPolicyBasedExternalRoute, Conflict, yes, "MixedSNAT", "another hop of the same pods asks for `skipHostSNAT`, so that they keep their address towards all", "let all hops of a namespace agree about `skipHostSNAT`"},
}
