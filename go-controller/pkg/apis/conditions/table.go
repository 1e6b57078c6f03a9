package conditions

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

// Remedies shared by several entries.
const (
	fixSelector  = "correct the selector"
	otherAddress = "use another address"
)

var table = []Entry{
	{EgressService, Assigned, yes, "HostAssigned", "a node serves the egress traffic; it is `status.host`", ""},
	{EgressService, Assigned, yes, "EveryNode", "every node serves its own pods (`sourceIPBy: Network`)", ""},
	{EgressService, Assigned, no, "ServiceNotFound", "there is no Service of this name in the namespace", "create the Service, or delete the EgressService"},
	{EgressService, Assigned, no, "ServiceNotLoadBalancer", "the Service has another type", "change it to `type: LoadBalancer`"},
	{EgressService, Assigned, no, "NoIngressIP", "the Service has no address in `status.loadBalancer.ingress` that can be used", "check why the load balancer assigns none; the message names those that are refused"},
	{EgressService, Assigned, no, "InvalidNodeSelector", "`nodeSelector` is not valid", fixSelector},
	{EgressService, Assigned, no, "UnsupportedSourceIP", "`sourceIPBy` has an unknown value", "use `LoadBalancerIP` or `Network`"},
	{EgressService, Assigned, no, "SharedGatewayMode", "`sourceIPBy: Network` in shared gateway mode", "use local gateway mode, or `LoadBalancerIP`"},
	{EgressService, Assigned, no, "InvalidNetwork", "`network` is not a name or number of a routing table", "correct it"},
	{EgressService, Assigned, no, "LabelTooLong", "the label that names the host's node would be too long", "use a shorter name for the Service or its namespace"},
	{EgressService, Assigned, no, "LabelTaken", "an older EgressService has the same label", "use another name"},
	{EgressService, Assigned, no, "NoNode", "no node can be the host; the message gives the reason for each", "label, uncordon or repair a node; with `externalTrafficPolicy: Local`, check that an endpoint is ready; if another EgressService has the same ingress address, allow both a common node"},
	{EgressService, Assigned, no, "Disabled", "EgressServices are not enabled; pods leave as if there were none", "set `enable-egress-service` for all of ovnkube"},
	{EgressService, Programmed, yes, "Programmed", "the host's rules and the policies that lead there are in force", ""},
	{EgressService, Programmed, yes, "EveryNode", "every node programs its own rules", ""},
	{EgressService, Programmed, no, "NotAssigned", "there is no host", "see `Assigned`"},
	{EgressService, Programmed, no, "Disabled", "EgressServices are not enabled", "see `Assigned`"},
	{EgressService, Programmed, no, "WaitingForHost", "the host has not confirmed yet that its rules are in force", "if this persists, see the log of ovnkube on that node"},
	{EgressService, Programmed, no, "NotAcknowledged", "the host is reachable, but has not confirmed in time that its rules are in force, and no other node can be the host", "restart ovnkube on that node, or allow another node to be the host"},
	{EgressService, Programmed, no, "NetworkNotFound", "a node has no such routing table, or the table has no route, or none of a family of its pods; this traffic takes the usual routes", "add the table or its routes on that node"},
	{EgressService, Conflict, no, "NoConflict", "no other EgressService has its pods", ""},
	{EgressService, Conflict, yes, "OlderEgressService", "older EgressServices select some of its pods and decide about them", "make sure that only one Service selects each pod"},
	{EgressService, Conflict, yes, ReasonAddressInUse, "a node claims an ingress address that is served, which stays in use", "find out whether the address is in use there; " + otherAddress + " if it is"},
	{EgressService, IngressRefused, yes, "InvalidAddress", "an ingress address cannot be a source of traffic", "check what writes the Service's status"},
	{EgressService, IngressRefused, yes, "InternalAddress", "an ingress address is in a range of the cluster", otherAddress},
	{EgressService, IngressRefused, yes, "NodeAddress", "an ingress address is that of a node", otherAddress},
	{EgressService, IngressRefused, yes, "APIServerAddress", "an ingress address is that of the API server", otherAddress},
	{EgressService, IngressRefused, yes, "GatewayAddress", "an ingress address is that of a node's gateway", otherAddress},
	{EgressService, IngressRefused, yes, "AddressTaken", "an ingress address belongs to an EgressIP", otherAddress},
	{EgressService, IngressRefused, yes, "ProxyMode", "an ingress address has `ipMode: Proxy`: packets do not arrive with it", "use a load balancer with `ipMode: VIP`"},

	{EgressIP, Assigned, yes, "Assigned", "every address has a node", ""},
	{EgressIP, Assigned, no, "InvalidSelector", "`namespaceSelector` or `podSelector` is not valid", fixSelector},
	{EgressIP, Assigned, no, "InvalidAddress", "an address cannot be a source of traffic on a network", "correct it"},
	{EgressIP, Assigned, no, "InternalAddress", "an address is in a range of the cluster", otherAddress},
	{EgressIP, Assigned, no, "NodeAddress", "an address is that of a node", otherAddress},
	{EgressIP, Assigned, no, "GatewayAddress", "an address is that of a node's gateway", otherAddress},
	{EgressIP, Assigned, no, "APIServerAddress", "an address is that of the API server", otherAddress},
	{EgressIP, Assigned, no, "AddressTaken", "an address belongs to an older EgressIP or to an older Service", otherAddress},
	{EgressIP, Assigned, no, "NoNode", "no node can hold an address; the message gives the reason for each", "label a node in the network of the address with `k8s.ovn.org/egress-assignable`, uncordon or repair it"},
	{EgressIP, Assigned, no, "Disabled", "EgressIPs are not enabled; pods leave as if there were none", "set `enable-egress-ip` for all of ovnkube"},
	{EgressIP, Programmed, yes, "Programmed", "the nodes hold the addresses and the policies that lead there are in force", ""},
	{EgressIP, Programmed, no, "NotAssigned", "no address has a node", "see `Assigned`"},
	{EgressIP, Programmed, no, "Disabled", "EgressIPs are not enabled", "see `Assigned`"},
	{EgressIP, Programmed, no, "NodeProblem", "a node cannot hold its address; the message is the node's", "correct what the message names on that node"},
	{EgressIP, Programmed, no, "NotAcknowledged", "a node is reachable, but does not do what it was assigned; the message names it", "restart ovnkube on that node, or switch the node off and delete it"},
	{EgressIP, Programmed, no, "WaitingForNode", "a node does not hold its address yet, or another node still holds it", "if this persists, see the log of ovnkube on that node"},
	{EgressIP, Programmed, no, "WaitingForPolicies", "policies or translations of some pods are not in force yet", "if this persists, see the log of the master"},
	{EgressIP, Conflict, no, "NoConflict", "no other EgressIP has its addresses or pods", ""},
	{EgressIP, Conflict, yes, "OlderEgressIP", "older EgressIPs have some of its addresses or select some of its pods", "make sure that only one EgressIP has each address and selects each pod"},
	{EgressIP, Conflict, yes, ReasonAddressInUse, "a node or a Service claims one of the addresses", "find out whether the address is in use there; " + otherAddress + " if it is"},

	{AdminPolicyBasedExternalRoute, Ready, yes, "Applied", "the pods of the selected namespaces use the hops", ""},
	{AdminPolicyBasedExternalRoute, Ready, no, "InvalidSelector", "`from.namespaceSelector` is not valid", fixSelector},
	{AdminPolicyBasedExternalRoute, Ready, no, "NoNamespaceSelected", "`from.namespaceSelector` selects no namespace", "label a namespace"},
	{AdminPolicyBasedExternalRoute, Ready, no, "NoHop", "no hop can be used; traffic leaves as if there were no policy", "see `HopsValid`"},
	{AdminPolicyBasedExternalRoute, Ready, no, "WriteFailed", "the routes of some nodes could not be written; ovnkube keeps trying", "if this persists, see the log of the master and the northbound database"},
	{AdminPolicyBasedExternalRoute, Ready, no, "Disabled", "external gateways are not enabled; pods leave as if there were no policy", "set `enable-multi-external-gateway` for all of ovnkube"},
	{AdminPolicyBasedExternalRoute, HopsValid, yes, "AllValid", "every hop can be used", ""},
	{AdminPolicyBasedExternalRoute, HopsValid, no, "InvalidHop", "some hops cannot be used, or not by all pods; the others are in use", "correct those that the message names"},
	{AdminPolicyBasedExternalRoute, HopsValid, no, "InvalidSelector", "a selector of a dynamic hop is not valid", fixSelector},
	{AdminPolicyBasedExternalRoute, HopsValid, no, "NoGatewayPodSelected", "a dynamic hop selects no running and ready gateway pod", "check the labels and readiness of the gateway pods"},
	{AdminPolicyBasedExternalRoute, Conflict, no, "NoConflict", "no other policy decides about its hops", ""},
	{AdminPolicyBasedExternalRoute, Conflict, yes, "DifferentOptions", "an older policy decides about the options of a hop", "give the hop the same options in all policies"},
	{AdminPolicyBasedExternalRoute, Conflict, yes, "MixedSNAT", "another hop of the same pods asks for `skipHostSNAT`, so that they keep their address towards all", "let all hops of a namespace agree about `skipHostSNAT`"},
}
