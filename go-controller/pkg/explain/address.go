package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
)

// Address is the answer about an address.
type Address struct {
	Header  `json:",inline"`
	Address string `json:"address"`
	// Uses are the EgressIPs that request it, in order of precedence, and the
	// EgressServices whose load balancers have assigned it.
	Uses []AddressUse `json:"uses,omitempty"`
	// Holders are the nodes that report it as an egress address.
	Holders []AddressHolder `json:"holders,omitempty"`
	// IfAsked is where it would be if a new EgressIP requested it; absent if one already
	// does, or if EgressIPs are not enabled.
	IfAsked *Assignment `json:"ifAsked,omitempty"`
	// Owners are its other uses: the address of a node, a pod or a Service.
	Owners []AddressOwner `json:"owners,omitempty"`
	// Pods are the pods that leave with it.
	Pods     []SelectedPod `json:"pods,omitempty"`
	Problems []Problem     `json:"problems,omitempty"`
}

// AddressUse is an object that uses an address.
type AddressUse struct {
	// Object is the EgressIP or the EgressService.
	Object     string `json:"object"`
	Assignment `json:",inline"`
}

// AddressHolder is a node that has an egress address.
type AddressHolder struct {
	Node string `json:"node"`
	// For is the EgressIP in whose status the node reports the address; absent if only the node's
	// annotation does.
	For string `json:"for,omitempty"`
}

// AddressOwner is an owner of an address.
type AddressOwner struct {
	// Object is the owner; absent if that is the cluster itself.
	Object string `json:"object,omitempty"`
	What   string `json:"what"`
}

// Address explains an address.
func (c *Cluster) Address(addr netip.Addr) Address {
	addr = addr.Unmap()
	header, problems := c.header(KindAddress)
	out := Address{Header: header, Address: addr.String(), Problems: problems}
	pods := map[string]SelectedPod{}
	requesting := c.requestedBy(addr)
	for _, e := range requesting {
		answer := c.egressIP(e)
		for _, a := range answer.Addresses {
			if is(a.Address, addr) {
				out.Uses = append(out.Uses, AddressUse{"EgressIP/" + e.Name, a})
			}
		}
		collect(pods, answer.Pods, addr)
		out.Problems = append(out.Problems, answer.Problems...)
	}
	for _, key := range slices.Sorted(maps.Keys(c.services)) {
		svc := c.index.services[key]
		if svc == nil || !slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) bool { return is(in.IP, addr) }) {
			continue
		}
		answer := c.service(key)
		use := AddressUse{"EgressService/" + key, *answer.Host}
		use.Address = addr.String()
		for _, a := range answer.LoadBalancer {
			if is(a.Address, addr) && !a.Used {
				use.Assignment = Assignment{Address: use.Address, Why: a.Why}
			}
		}
		out.Uses = append(out.Uses, use)
		collect(pods, answer.Pods, addr)
		out.Problems = append(out.Problems, answer.Problems...)
	}
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		out.Pods = append(out.Pods, pods[key])
	}
	out.Holders = c.holders(addr)
	for _, l := range c.leftovers() {
		if l.addr == addr {
			out.Problems = append(out.Problems, l.problem)
		}
	}
	if len(requesting) == 0 && c.snap.Settings.EgressIP {
		a := c.ifRequested(addr)
		out.IfAsked = &a
	}
	out.Owners = c.ownersOf(addr)
	out.InPlace = len(out.Problems) == 0
	out.Notes = append(slices.Clone(out.Notes), c.reachabilityNotes()...)
	return out
}

// is reports whether a text is an address, in any notation.
func is(text string, addr netip.Addr) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Unmap() == addr
}

// requestedBy returns the EgressIPs that request an address, in order of precedence.
func (c *Cluster) requestedBy(addr netip.Addr) []*egressipv1.EgressIP {
	var requesting []*egressipv1.EgressIP
	for _, e := range c.snap.EgressIPs {
		if slices.ContainsFunc(e.Spec.EgressIPs, func(a egressipv1.Address) bool { return is(string(a), addr) }) {
			requesting = append(requesting, e)
		}
	}
	slices.SortFunc(requesting, func(a, b *egressipv1.EgressIP) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return requesting
}

// collect adds the pods that leave with an address.
func collect(pods map[string]SelectedPod, all []SelectedPod, addr netip.Addr) {
	for _, p := range all {
		if slices.ContainsFunc(p.Families, func(f PodFamily) bool {
			return slices.ContainsFunc(f.Sources, func(s Source) bool { return s.Address == addr.String() })
		}) {
			pods[p.Pod] = p
		}
	}
}

// holders returns the nodes that report an egress address.
func (c *Cluster) holders(addr netip.Addr) []AddressHolder {
	var holders []AddressHolder
	said := map[string]bool{}
	for _, e := range c.decoded {
		for _, node := range e.Holders[addr] {
			said[node] = true
			holders = append(holders, AddressHolder{node, "EgressIP/" + e.Key})
		}
	}
	for _, n := range c.snap.Nodes {
		if slices.Contains(onInterfaces(n), addr) && !said[n.Name] {
			holders = append(holders, AddressHolder{Node: n.Name})
		}
	}
	return holders
}

// onInterfaces returns the egress addresses that the annotation of a node lists.
func onInterfaces(n *corev1.Node) []netip.Addr {
	addrs, err := kube.EgressIPAddresses(n)
	if err != nil {
		return nil // the node will rewrite it
	}
	return addrs
}

// leftover is an egress address that a node has but that is no longer assigned to it.
type leftover struct {
	node    string
	addr    netip.Addr
	problem Problem
}

// leftovers returns those that no EgressIP requests. Addresses that their EgressIP has on another node are
// among the pending acknowledgements.
func (c *Cluster) leftovers() []leftover {
	var left []leftover
	type site struct {
		node string
		addr netip.Addr
	}
	known := map[site]bool{}
	for _, e := range c.decoded {
		for _, p := range c.placed[e.Key].Placements {
			known[site{p.Node, p.Addr}] = true
		}
		requested := e.Addrs()
		for _, addr := range slices.SortedFunc(maps.Keys(e.Holders), netip.Addr.Compare) {
			for _, node := range e.Holders[addr] {
				known[site{node, addr}] = true
				if !slices.Contains(requested, addr) {
					left = append(left, leftover{node, addr, Problem{Object: "EgressIP/" + e.Key, Reason: ReasonWaiting,
						Message: fmt.Sprintf("node %s is yet to release %s, which the spec does not ask for", node, addr)}})
				}
			}
		}
	}
	for _, n := range c.snap.Nodes {
		for _, addr := range onInterfaces(n) {
			if !known[site{n.Name, addr}] {
				left = append(left, leftover{n.Name, addr, Problem{Object: "Node/" + n.Name, Reason: ReasonWaiting,
					Message: fmt.Sprintf("it is yet to take %s off its interface: no EgressIP gives it to the node", addr)}})
			}
		}
	}
	return left
}

// ifRequested returns where an address would be if a new EgressIP requested it.
func (c *Cluster) ifRequested(addr netip.Addr) Assignment {
	// No object has an empty name.
	obj := &egressipv1.EgressIP{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(c.snap.Taken)},
		Spec: egressipv1.EgressIPSpec{EgressIPs: []egressipv1.Address{egressipv1.Address(addr.String())}}}
	e := egressip.Decode(obj)
	decided := egressip.Decide(c.candidates(), append(slices.Clone(c.decoded), e), c.network)
	a := c.assignment(e, obj, decided[e.Key].Placements[0])
	if a.Node != "" {
		a.Why = "of the nodes that can hold it, one of those with the fewest addresses; among equals, the name of the EgressIP decides"
	}
	return a
}

// ownersOf returns the uses of an address other than as an egress address.
func (c *Cluster) ownersOf(addr netip.Addr) []AddressOwner {
	var owners []AddressOwner
	add := func(object, what string) { owners = append(owners, AddressOwner{object, what}) }
	if why := c.addresses.Ranges.Refuse(addr); why != (reserved.Refusal{}) {
		add("", why.Message)
	}
	var gateways []reserved.Owner
	for _, o := range c.addresses.Owners(addr) {
		switch o.Kind {
		case reserved.Node:
			add("Node/"+o.Name, o.Refuse().Message)
		case reserved.APIServer:
			add("", o.Refuse().Message)
		case reserved.Gateway:
			gateways = append(gateways, o)
		}
	}
	switch len(gateways) {
	case 0:
	case 1:
		add("Node/"+gateways[0].Name, gateways[0].Refuse().Message)
	default:
		add("", fmt.Sprintf("it is the gateway of %d nodes", len(gateways)))
	}
	for _, n := range c.candidates() {
		if slices.Contains(n.ManagementAddrs(), addr) {
			add("Node/"+n.Name, "it is the address of the node's management port")
		}
		if slices.ContainsFunc(n.Join, func(p netip.Prefix) bool { return p.Addr() == addr }) {
			add("Node/"+n.Name, "it is the address of the node's gateway router on the join switch")
		}
	}
	for _, p := range c.snap.Pods {
		if kube.NeedsNetwork(p) && slices.Contains(podAddrs(p), addr) {
			add("Pod/"+kube.PodKey(p), "it is the address of the pod, on node "+p.Spec.NodeName)
		}
	}
	for _, svc := range c.snap.Services {
		for _, has := range serviceAddrs(svc) {
			if is(has.text, addr) {
				add("Service/"+svc.Namespace+"/"+svc.Name, "it is "+has.what+" of the Service")
				break
			}
		}
	}
	var namespaces []string
	for ns, hops := range c.routes.Hops {
		if slices.ContainsFunc(hops, func(h externalroute.Hop) bool { return h.Addr == addr }) {
			namespaces = append(namespaces, ns)
		}
	}
	switch len(namespaces) {
	case 0:
	case 1:
		add("Namespace/"+namespaces[0], "it is an external gateway of the namespace")
	default:
		add("", fmt.Sprintf("it is an external gateway of %d namespaces", len(namespaces)))
	}
	return owners
}

// serviceAddr is an address of a Service and its kind.
type serviceAddr struct {
	text, what string
	// outside: load balancers and routers bring traffic for it, and it may belong to somebody
	// else.
	outside bool
	// proxied: load balancers do not forward the traffic for it unchanged.
	proxied bool
	// nodePort: it is a node's, which serves node ports.
	nodePort bool
}

// serviceAddrs returns the addresses of a Service.
func serviceAddrs(svc *corev1.Service) []serviceAddr {
	var all []serviceAddr
	for _, a := range append(slices.Clone(svc.Spec.ClusterIPs), svc.Spec.ClusterIP) {
		all = append(all, serviceAddr{text: a, what: "a cluster IP"})
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		proxied := in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP
		all = append(all, serviceAddr{text: in.IP, what: "an address of the load balancer", outside: true, proxied: proxied})
	}
	for _, a := range svc.Spec.ExternalIPs {
		all = append(all, serviceAddr{text: a, what: "an external IP", outside: true})
	}
	return all
}

// Text writes the answer as text for people.
func (a Address) Text(w io.Writer) {
	now := a.AsOf.Time
	switch {
	case len(a.Uses) > 0:
		fmt.Fprintf(w, "Address %s, an egress address\n", a.Address)
	case len(a.Holders) > 0:
		fmt.Fprintf(w, "Address %s, an egress address that no object asks for\n", a.Address)
	default:
		fmt.Fprintf(w, "Address %s, no egress address\n", a.Address)
	}
	for _, o := range a.Owners {
		if o.Object != "" {
			fmt.Fprintf(w, "  %s: ", o.Object)
		} else {
			fmt.Fprint(w, "  ")
		}
		fmt.Fprintln(w, o.What)
	}
	for _, u := range a.Uses {
		u.Assignment.text(w, u.Object, now)
	}
	for i, h := range a.Holders {
		if i == 0 {
			fmt.Fprintln(w)
		}
		if h.For == "" {
			fmt.Fprintf(w, "Held by node %s, as its annotation %s says\n", h.Node, kube.AnnotationEgressIPAddresses)
		} else {
			fmt.Fprintf(w, "Held by node %s, as the status of %s says\n", h.Node, h.For)
		}
	}
	if a.IfAsked != nil {
		node := "no node"
		if a.IfAsked.Node != "" {
			node = "node " + a.IfAsked.Node
		}
		fmt.Fprintf(w, "\nIf a new EgressIP asked for it: on %s\n", node)
		a.IfAsked.body(w)
	}
	if len(a.Uses) > 0 {
		podLines(w, "Pods that leave with it", a.Pods)
	}
	problems(w, "", a.Problems, now)
	a.Header.text(w)
}
