package externalroute

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// source is a hop with its origin.
type source struct {
	Hop
	pod string // "namespace/name" of the gateway pod of a dynamic hop
}

// problem is a reason why a hop of a policy is not used.
type problem struct {
	reason  string // of the condition
	message string
}

// resolver finds the hops of policies.
type resolver struct {
	cfg        Config
	snap       Snapshot
	nodeOf     map[netip.Addr]string
	gatewayNSs map[string]bool // in which some policy looks for gateway pods
	refused    map[string]map[string]bool
}

// The annotations that name gateways, for messages.
const (
	annotationGateways   = "k8s.ovn.org/routing-external-gws"
	annotationNamespaces = "k8s.ovn.org/routing-namespaces"
	annotationNetworks   = "k8s.v1.cni.cncf.io/network-status"
)

// origin names the source of a gateway pod's addresses on a network.
func origin(network string) string {
	if network == "" {
		return "status.hostIPs"
	}
	return "annotation " + annotationNetworks
}

func newResolver(cfg Config, snap Snapshot) *resolver {
	r := &resolver{cfg: cfg, snap: snap, nodeOf: map[netip.Addr]string{}, gatewayNSs: map[string]bool{}, refused: map[string]map[string]bool{}}
	for node, addrs := range snap.NodeAddrs {
		for _, a := range addrs {
			if other, ok := r.nodeOf[a]; !ok || node < other {
				r.nodeOf[a] = node
			}
		}
	}
	return r
}

// resolve returns the hops of a policy, without duplicates and sorted by address, and the
// problems with the others.
func (r *resolver) resolve(spec v1.ExternalNextHops) (hops []source, problems []problem) {
	add := func(h source, what string) {
		if i := slices.IndexFunc(hops, func(o source) bool { return o.Addr == h.Addr }); i >= 0 {
			if hops[i].Hop != h.Hop {
				problems = append(problems, problem{v1.ReasonInvalidHop,
					fmt.Sprintf("%s: the policy names %s twice with different options, the first holds", what, h.Addr)})
			}
			return
		}
		hops = append(hops, h)
	}
	for i, s := range spec.Static {
		what := fmt.Sprintf("static hop %d (%s)", i+1, s.IP)
		addr, err := netip.ParseAddr(s.IP)
		if err != nil {
			problems = append(problems, problem{v1.ReasonInvalidHop, what + ": is not an IP address"})
			continue
		}
		if why := r.refuse(addr.Unmap()); why != "" {
			problems = append(problems, problem{v1.ReasonInvalidHop, fmt.Sprintf("%s: %s", what, why)})
			continue
		}
		add(source{Hop: hop(addr.Unmap(), s.HopOptions)}, what)
		if why := r.ofNode(addr.Unmap()); why != "" {
			problems = append(problems, problem{v1.ReasonInvalidHop, fmt.Sprintf("%s: %s", what, why)})
		}
	}
	for i, d := range spec.Dynamic {
		what := fmt.Sprintf("dynamic hop %d", i+1)
		pods, err := r.gateways(d)
		if err != nil {
			problems = append(problems, problem{v1.ReasonInvalidSelector, fmt.Sprintf("%s: %v", what, err)})
			continue
		}
		usable := 0
		for _, p := range pods {
			addrs, refused, err := r.addrs(p, d.NetworkAttachmentName)
			if err != nil {
				problems = append(problems, problem{v1.ReasonInvalidHop, fmt.Sprintf("%s, pod %s: %v", what, p.Key, err)})
				continue
			}
			for _, u := range refused {
				problems = append(problems, problem{v1.ReasonInvalidHop, fmt.Sprintf("%s, pod %s (%s): %s", what, p.Key, u.addr, u.why)})
			}
			for _, a := range addrs {
				add(source{Hop: hop(a, d.HopOptions), pod: p.Key}, fmt.Sprintf("%s, pod %s (%s)", what, p.Key, a))
			}
			usable++
		}
		if usable == 0 {
			problems = append(problems, problem{v1.ReasonNoGatewayPod, what + ": selects no pod that is a gateway, runs and is ready"})
		}
	}
	slices.SortFunc(hops, func(a, b source) int { return a.Addr.Compare(b.Addr) })
	return hops, problems
}

func hop(addr netip.Addr, o v1.HopOptions) Hop {
	h := Hop{Addr: addr, BFD: o.BFDEnabled, SkipSNAT: o.SkipHostSNAT}
	if o.BFDEnabled && o.BFD != nil {
		value := func(p *int32) int {
			if p == nil {
				return 0
			}
			return int(*p)
		}
		h.Timers = Timers{MinRx: value(o.BFD.MinRx), MinTx: value(o.BFD.MinTx), Multiplier: value(o.BFD.Multiplier)}
	}
	return h
}

// gateways returns the ready pods that a dynamic hop selects, sorted by key.
func (r *resolver) gateways(d v1.DynamicHop) ([]GatewayPod, error) {
	inNamespaces, err := metav1.LabelSelectorAsSelector(&d.NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("namespaceSelector is not valid: %w", err)
	}
	isGateway, err := metav1.LabelSelectorAsSelector(&d.PodSelector)
	if err != nil {
		return nil, fmt.Errorf("podSelector is not valid: %w", err)
	}
	var pods []GatewayPod
	for _, ns := range r.snap.Namespaces {
		if !inNamespaces.Matches(labels.Set(ns.Labels)) {
			continue
		}
		r.gatewayNSs[ns.Name] = true
		for _, p := range r.snap.Pods(ns.Name) {
			if p.Ready && isGateway.Matches(labels.Set(p.Labels)) {
				pods = append(pods, p)
			}
		}
	}
	slices.SortFunc(pods, func(a, b GatewayPod) int { return strings.Compare(a.Key, b.Key) })
	return pods, nil
}

// attachment returns a gateway pod's attachment to a network, or that of its host if no
// network is named.
func (p GatewayPod) attachment(network string) (topology.Attachment, error) {
	fail := func(format string, args ...any) (topology.Attachment, error) {
		return topology.Attachment{}, fmt.Errorf(format, args...)
	}
	if network == "" {
		if !p.HostNetwork {
			return fail("it is not on the host's network, and no attached network is named")
		}
		if len(p.HostAddrs) == 0 {
			return fail("its host's address is not known yet")
		}
		return topology.Attachment{Addrs: p.HostAddrs}, nil
	}
	if p.NetworksErr != "" {
		return fail("its network-status does not parse: %s", p.NetworksErr)
	}
	namespace, _, _ := strings.Cut(p.Key, "/")
	for _, n := range p.Networks {
		if n.Name != network && n.Name != namespace+"/"+network {
			continue
		}
		if len(n.Addrs)+len(n.Bad) == 0 {
			return fail("it has no address on network %s", network)
		}
		return n, nil
	}
	return fail("its network-status has no network %s", network)
}

// unusable is an address of a pod that cannot be a gateway.
type unusable struct{ addr, why string }

// addrs returns the addresses at which a pod can be a gateway on a network, and its others, which
// it records as refused.
func (r *resolver) addrs(p GatewayPod, network string) (addrs []netip.Addr, others []unusable, err error) {
	at, err := p.attachment(network)
	if err != nil {
		r.recordRefusal(p.Key, "%s: %v", origin(network), err)
		return nil, nil, err
	}
	for _, text := range at.Bad {
		others = append(others, unusable{strconv.Quote(text), "is not an IP address"})
	}
	for _, a := range at.Addrs {
		if why := r.refuseOf(network, a); why != "" {
			others = append(others, unusable{a.String(), why})
			continue
		}
		addrs = append(addrs, a)
	}
	for _, o := range others {
		r.recordRefusal(p.Key, "%s: %s %s", origin(network), o.addr, o.why)
	}
	return addrs, others, nil
}

// announced returns the addresses at which a pod is a gateway according to its own
// annotation.
func (r *resolver) announced(p GatewayPod) []netip.Addr {
	namespace, _, _ := strings.Cut(p.Key, "/")
	if r.cfg.GatewayNamespaces != nil && !slices.Contains(r.cfg.GatewayNamespaces, namespace) {
		r.recordRefusal(p.Key, "annotation %s: no pod of namespace %s may be a gateway by annotation; the option external-gateway-namespaces does not name it",
			annotationNamespaces, namespace)
		return nil
	}
	addrs, _, _ := r.addrs(p, p.RoutingNetwork) // the problems are recorded as refusals
	return addrs
}

// recordRefusal records why a gateway of an object, a namespace or a pod, is not used.
func (r *resolver) recordRefusal(object, format string, args ...any) {
	if r.refused[object] == nil {
		r.refused[object] = map[string]bool{}
	}
	r.refused[object][fmt.Sprintf(format, args...)] = true
}

func (r *resolver) refusals() map[string][]string {
	refusals := make(map[string][]string, len(r.refused))
	for object, messages := range r.refused {
		refusals[object] = slices.Sorted(maps.Keys(messages))
	}
	return refusals
}

// refuseOf returns why a pod's address on a network, or on its host's network
// if none is named, cannot be a gateway, or "" if it can. A pod's addresses are not
// trustworthy, since they come from its annotations.
func (r *resolver) refuseOf(network string, a netip.Addr) string {
	if why := r.refuse(a); why != "" {
		return why
	}
	if node, ok := r.nodeOf[a]; ok && network != "" {
		return fmt.Sprintf("is the address of node %s, which no attached network gives to a pod", node)
	}
	return ""
}

// ofNode returns which pods cannot use the address of a node, or "" for other addresses.
func (r *resolver) ofNode(a netip.Addr) string {
	node, ok := r.nodeOf[a]
	if !ok {
		return ""
	}
	return fmt.Sprintf("is the address of node %s, whose own pods cannot use it", node)
}

// refuse returns why an address cannot be a gateway, or "" if it can.
func (r *resolver) refuse(a netip.Addr) string {
	family := topology.FamilyOf(a)
	switch {
	case a.Zone() != "":
		return "an address with a zone is not a gateway"
	case reserved.NoHost(a) != "":
		return "is " + reserved.NoHost(a) + ", which is not supported as gateway"
	case !slices.Contains(r.cfg.families(), family):
		return fmt.Sprintf("no pod of this cluster has an %s address", family)
	}
	for _, p := range r.cfg.Cluster {
		if p.Contains(a) {
			return fmt.Sprintf("is in the pod network %s", p)
		}
	}
	for _, p := range r.cfg.Internal {
		if p.Contains(a) {
			return fmt.Sprintf("is in %s, which the cluster uses itself", p)
		}
	}
	// The network or broadcast address of one node's network may be a host's address in another's.
	var networks []netip.Prefix
	for _, p := range r.snap.Networks {
		switch {
		case !p.Contains(a):
		case topology.IsOfAll(p, a):
			networks = append(networks, p)
		default:
			return ""
		}
	}
	if len(networks) > 0 {
		return fmt.Sprintf("is the network or broadcast address of %s", networks[0].Masked())
	}
	return ""
}
