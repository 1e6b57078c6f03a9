package explain

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Service is the answer about a Service and the EgressService of the same name.
type Service struct {
	Header  `json:",inline"`
	Service string `json:"service"`
	// EgressService reports whether an EgressService of that name exists.
	EgressService bool `json:"egressService"`
	// SourceIPBy, Network and NodeSelector are from its spec; NodeSelector is absent
	// if every node may be the host.
	SourceIPBy   string `json:"sourceIPBy,omitempty"`
	Network      string `json:"network,omitempty"`
	NodeSelector string `json:"nodeSelector,omitempty"`
	// LocalOnly reports whether the host needs a ready endpoint of the Service.
	LocalOnly bool `json:"localOnly,omitempty"`
	// Host is the node from which the pods leave; absent if there is no EgressService.
	Host *Assignment `json:"host,omitempty"`
	// LoadBalancer are the addresses that the load balancer has assigned to the Service.
	LoadBalancer []LoadBalancerAddress `json:"loadBalancer,omitempty"`
	// Pods are the pods that the Service selects or lists.
	Pods       []SelectedPod `json:"pods,omitempty"`
	Conditions []Condition   `json:"conditions,omitempty"`
	// Conflicts are the older EgressServices that have some of its pods.
	Conflicts []string  `json:"conflicts,omitempty"`
	Problems  []Problem `json:"problems,omitempty"`
}

// LoadBalancerAddress is an ingress address of a Service.
type LoadBalancerAddress struct {
	Address string `json:"address"`
	// Used reports whether pods are to leave with it.
	Used bool   `json:"used"`
	Why  string `json:"why"`
}

// Service explains the Service "namespace/name" with its EgressService.
func (c *Cluster) Service(key string) (Service, error) {
	if !c.snap.Settings.EgressService {
		return Service{}, fmt.Errorf("EgressService %s: %w", key, ErrDisabled)
	}
	if c.objects[key] == nil && c.index.services[key] == nil {
		return Service{}, fmt.Errorf("Service %s: %w", key, ErrNotFound)
	}
	out := c.service(key)
	header, problems := c.header(KindService)
	out.Header, out.Problems = header, append(problems, out.Problems...)
	out.InPlace = len(out.Problems) == 0
	out.Notes = append(slices.Clone(out.Notes), c.reachabilityNotes()...)
	return out, nil
}

// service returns the answer about a Service without its header.
func (c *Cluster) service(key string) Service {
	out := Service{Service: key}
	svc := c.index.services[key]
	obj := c.objects[key]
	if obj == nil {
		out.LoadBalancer = loadBalancer(svc, egressservice.Service{}, "there is no EgressService of the name")
		out.Pods = c.podsBehind(key, svc, "there is no EgressService of the name")
		return out
	}
	s, d := c.services[key], c.hosted[key]
	object := "EgressService/" + key
	out.EgressService, out.SourceIPBy, out.Network = true, string(obj.Spec.Source()), obj.Spec.Network
	if out.LocalOnly = s.LocalOnly; !s.PerNode {
		if sel := &obj.Spec.NodeSelector; len(sel.MatchLabels)+len(sel.MatchExpressions) > 0 {
			out.NodeSelector = metav1.FormatLabelSelector(sel)
		}
	}
	out.Conditions, out.Problems = c.serviceState(key)
	host := c.host(key)
	out.Host = &host
	none := egressservice.RejectionReason(s, d).Message
	unused := none
	if s.PerNode && unused == "" {
		unused = "sourceIPBy is Network: pods leave with the address of the interface that they leave by"
	}
	out.LoadBalancer = loadBalancer(svc, s, unused)
	out.Pods = c.podsBehind(key, svc, none)
	out.Problems = append(out.Problems, waiting(out.Pods, object)...)
	for _, other := range s.Conflicts {
		out.Conflicts = append(out.Conflicts, "EgressService/"+other)
	}
	return out
}

// serviceState returns the conditions of an EgressService and its deviations from the plan.
func (c *Cluster) serviceState(key string) ([]Condition, []Problem) {
	obj, object := c.objects[key], "EgressService/"+key
	short, problems := conditionsOf(object, obj.Generation, obj.Status.Conditions)
	host, programmed := c.serving(key)
	if host != obj.Status.Host {
		problems = append(problems, Problem{Object: object, Reason: ReasonNotPlanned,
			Message: fmt.Sprintf("the planner says host %q, the status %q", host, obj.Status.Host)})
	}
	if host != "" && !programmed {
		message := "host " + host + " is yet to acknowledge its rules"
		if host == egressservicev1.HostAll {
			message = "it is not in force on every node"
		}
		problems = append(problems, Problem{Object: object, Reason: ReasonWaiting, Message: message, Since: unprogrammed(obj.Status.Conditions)})
	}
	return short, append(problems, c.misplacedLabels(key)...)
}

// serving returns the host that the planner chooses for an EgressService, and whether that host has
// its traffic.
func (c *Cluster) serving(key string) (host string, programmed bool) {
	s, d := c.services[key], c.hosted[key]
	host = egressservice.Status(s, d)
	return host, host != "" && host == s.Host && s.Done && (host == egressservicev1.HostAll || egressservice.Acknowledged(s, d))
}

// host returns the node that is the host of an EgressService, and the reason.
func (c *Cluster) host(key string) Assignment {
	s, d, obj := c.services[key], c.hosted[key], c.objects[key]
	refused := egressservice.RejectionReason(s, d)
	var out Assignment
	out.Node, out.Programmed = c.serving(key)
	switch {
	case out.Node == "":
		out.Why = refused.Message
	case out.Node == egressservicev1.HostAll:
		out.Why = "sourceIPBy is Network: every node serves its own pods"
	case out.Node == s.Host:
		out.Why = "it stays with the node that the status gives it to"
	default:
		out.Why = "chosen of the nodes that can be the host: EgressServices are spread"
	}
	if !out.Programmed {
		out.Since = unprogrammed(obj.Status.Conditions)
	}
	if s.PerNode || refused != (egressservice.Refusal{}) && refused.Reason != egressservice.NoNode {
		return out
	}
	for _, n := range c.candidates() {
		if n.Name == out.Node {
			continue
		}
		why := egressservice.Objection(n, s)
		other := OtherNode{Node: n.Name, Possible: why == "", Why: string(why)}
		if other.Possible {
			other.Why = fmt.Sprintf("could be the host, and is that of %d others", len(c.index.hosted[n.Name]))
		}
		out.Others = append(out.Others, other)
	}
	return out
}

// loadBalancer returns the ingress addresses of a Service; unused is why none of them is
// used, empty if some are.
func loadBalancer(svc *corev1.Service, s egressservice.Service, unused string) []LoadBalancerAddress {
	var out []LoadBalancerAddress
	if svc == nil {
		return nil
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		a := LoadBalancerAddress{Address: in.IP, Why: unused}
		addr, err := netip.ParseAddr(in.IP)
		refused := slices.IndexFunc(s.RefusedIngress, func(r egressservice.RefusedAddress) bool { return r.Address == in.IP })
		switch {
		case in.IP == "":
			continue
		case refused >= 0:
			a.Why = s.RefusedIngress[refused].Message
		case unused != "":
		case err == nil && slices.Contains(s.Ingress, addr.Unmap()):
			a.Used, a.Why = true, fmt.Sprintf("pods leave with it in %s", topology.FamilyOf(addr.Unmap()))
		default:
			a.Why = "pods leave with the first address of each family"
		}
		out = append(out, a)
	}
	return out
}

// podsBehind returns the pods that a Service selects or lists, with the outcomes for their traffic;
// none is why its EgressService serves no pod, empty if it serves some.
func (c *Cluster) podsBehind(key string, svc *corev1.Service, none string) []SelectedPod {
	listed := c.index.listed[key]
	namespace, _, _ := strings.Cut(key, "/")
	selector := labels.Nothing()
	if svc != nil && len(svc.Spec.Selector) > 0 {
		selector = labels.SelectorFromSet(svc.Spec.Selector)
	}
	var pods []SelectedPod
	for _, p := range c.snap.Pods {
		is := selector.Matches(labels.Set(p.Labels)) || slices.ContainsFunc(podAddrs(p), func(a netip.Addr) bool { return listed[a] })
		if p.Namespace != namespace || ended(p) || !is {
			continue
		}
		out := c.selectedPod("EgressService/"+key, kube.PodKey(p))
		for i := range out.Families {
			f := &out.Families[i]
			switch {
			case f.WhyNot == "" || f.Outcome == OutcomeNone || p.Spec.HostNetwork || f.considered:
			case c.objects[key] != nil && c.unserved(key, f.Family) != "":
				f.WhyNot = c.unserved(key, f.Family)
			case none != "":
				f.WhyNot = none
			default:
				f.WhyNot = "no EndpointSlice of the Service lists the pod in this family"
			}
		}
		pods = append(pods, out)
	}
	slices.SortFunc(pods, func(a, b SelectedPod) int { return cmp.Compare(a.Pod, b.Pod) })
	return pods
}

// Text writes the answer as text for people.
func (s Service) Text(w io.Writer) {
	now := s.AsOf.Time
	if !s.EgressService {
		fmt.Fprintf(w, "Service %s, without an EgressService\n", s.Service)
	} else {
		fmt.Fprintf(w, "Service %s, with an EgressService\n", s.Service)
		nodes := "every node may be the host"
		switch {
		case s.SourceIPBy == string(egressservicev1.SourceIPNetwork):
			nodes = "every node serves its own pods"
		case s.NodeSelector != "":
			nodes = "those with " + s.NodeSelector + " may be the host"
		}
		if s.LocalOnly {
			nodes += ", if they have a ready endpoint: externalTrafficPolicy is Local"
		}
		fmt.Fprintf(w, "  %-10s by %s\n", "source", s.SourceIPBy)
		fmt.Fprintf(w, "  %-10s %s\n", "nodes", nodes)
		if s.Network != "" {
			fmt.Fprintf(w, "  %-10s %s\n", "network", s.Network)
		}
		conditionLines(w, "  ", s.Conditions, now)
	}
	if s.Host != nil {
		s.Host.text(w, "Host", now)
	}
	if len(s.LoadBalancer) > 0 {
		fmt.Fprintf(w, "\nLoad balancer: %d\n", len(s.LoadBalancer))
	}
	for _, a := range s.LoadBalancer {
		mark := "-"
		if a.Used {
			mark = "*"
		}
		fmt.Fprintf(w, "  %s %s: %s\n", mark, a.Address, a.Why)
	}
	podLines(w, "Pods", s.Pods)
	for _, other := range s.Conflicts {
		fmt.Fprintf(w, "%s is older and has some of the pods\n", other)
	}
	problems(w, "", s.Problems, now)
	s.Header.text(w)
}
