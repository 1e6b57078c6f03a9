package externalroute

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Plan is the assignment of gateways to namespaces. It is not modified after its creation.
type Plan struct {
	// Hops are the gateways of each namespace that has any, sorted by address.
	Hops map[string][]Hop
	// Policies are all policies, by name.
	Policies map[string]Policy
	// GatewayNamespaces are the namespaces in which policies look for gateway pods.
	GatewayNamespaces map[string]bool
	// Annotated are the usable gateways from annotations, by namespace and by the annotated
	// object: "namespace", or "namespace/pod".
	Annotated map[string]map[string][]netip.Addr
	// Refused are the reasons why gateways from annotations or gateway pods are not used, or only
	// by the pods of other nodes, by object: "namespace", or "namespace/pod". The lists are
	// sorted.
	Refused map[string][]string
}

// Policy is the decision about an AdminPolicyBasedExternalRoute.
type Policy struct {
	UID        types.UID // of the object that was decided on
	Generation int64     // of its spec
	Namespaces []string  // the selected namespaces, sorted
	hops       []source
	problems   []problem
	conflicts  []problem
	selector   string // why the namespace selector is not valid
}

// decision is the state of one run of Decide.
type decision struct {
	cfg      Config
	policies []*v1.AdminPolicyBasedExternalRoute // oldest first
	results  map[string]*Policy
	timers   map[netip.Addr]timersOf
	// merged is by namespace and address; of is the policy that takes precedence, empty for
	// an annotation.
	merged map[string]map[netip.Addr]merged
	// annotated is Annotated of the Plan.
	annotated map[string]map[string][]netip.Addr
}

type timersOf struct {
	Timers
	policy string
}

type merged struct {
	Hop
	of string
}

// Decide decides which namespaces use which gateways. The result does not depend on the order of
// anything in the snapshot.
func Decide(cfg Config, snap Snapshot) Plan {
	d := &decision{
		cfg:      cfg,
		policies: slices.Clone(snap.Policies),
		results:  map[string]*Policy{},
		timers:   map[netip.Addr]timersOf{},
		merged:   map[string]map[netip.Addr]merged{},

		annotated: map[string]map[string][]netip.Addr{},
	}
	slices.SortFunc(d.policies, func(a, b *v1.AdminPolicyBasedExternalRoute) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	namespaces := slices.Clone(snap.Namespaces)
	slices.SortFunc(namespaces, func(a, b Namespace) int { return cmp.Compare(a.Name, b.Name) })
	snap.Namespaces = namespaces
	r := newResolver(cfg, snap)
	for _, p := range d.policies {
		d.add(p, r)
	}
	d.annotations(r)
	plan := Plan{Hops: map[string][]Hop{}, Policies: map[string]Policy{}, GatewayNamespaces: r.gatewayNSs,
		Annotated: d.annotated, Refused: r.refusals()}
	for _, ns := range slices.Sorted(maps.Keys(d.merged)) {
		plan.Hops[ns] = d.finish(ns, d.merged[ns])
	}
	for name, p := range d.results {
		plan.Policies[name] = *p
	}
	return plan
}

// add merges a policy into the decisions of older ones.
func (d *decision) add(p *v1.AdminPolicyBasedExternalRoute, r *resolver) {
	result := &Policy{UID: p.UID, Generation: p.Generation}
	d.results[p.Name] = result
	result.hops, result.problems = r.resolve(p.Spec.NextHops)
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.From.NamespaceSelector)
	if err != nil {
		result.selector = err.Error()
		return
	}
	for _, ns := range r.snap.Namespaces {
		if selector.Matches(labels.Set(ns.Labels)) {
			result.Namespaces = append(result.Namespaces, ns.Name)
		}
	}
	if len(result.Namespaces) == 0 {
		return
	}
	for _, h := range result.hops {
		d.addTimers(p.Name, result, h.Hop)
		d.addHop(p.Name, result, h.Hop)
	}
}

// addTimers sets the timers of the BFD sessions with a hop.
func (d *decision) addTimers(name string, result *Policy, h Hop) {
	if !h.BFD {
		return
	}
	older, ok := d.timers[h.Addr]
	if !ok {
		d.timers[h.Addr] = timersOf{h.Timers, name}
		return
	}
	if older.Timers != h.Timers {
		result.conflicts = append(result.conflicts, problem{v1.ReasonDifferentOptions,
			fmt.Sprintf("hop %s: the older policy %s decides about the BFD timers", h.Addr, older.policy)})
	}
}

// addHop adds a hop to the namespaces of its policy.
func (d *decision) addHop(name string, result *Policy, h Hop) {
	lost := map[string][]string{} // namespaces by the policy that takes precedence
	for _, ns := range result.Namespaces {
		older, ok := d.merged[ns][h.Addr]
		if !ok {
			if d.merged[ns] == nil {
				d.merged[ns] = map[netip.Addr]merged{}
			}
			d.merged[ns][h.Addr] = merged{Hop: h, of: name}
			continue
		}
		if older.BFD != h.BFD || older.SkipSNAT != h.SkipSNAT {
			lost[older.of] = append(lost[older.of], ns)
		}
	}
	for _, older := range slices.Sorted(maps.Keys(lost)) {
		result.conflicts = append(result.conflicts, problem{v1.ReasonDifferentOptions,
			fmt.Sprintf("hop %s: the older policy %s decides about bfdEnabled and skipHostSNAT in %s",
				h.Addr, older, list(lost[older]))})
	}
}

// annotations adds the hops that namespaces and pods name by annotation. The hops
// of policies have already been added.
func (d *decision) annotations(r *resolver) {
	byName := map[string]bool{}
	add := func(ns, object string, a netip.Addr, bfd bool) {
		if d.annotated[ns] == nil {
			d.annotated[ns] = map[string][]netip.Addr{}
		}
		d.annotated[ns][object] = append(d.annotated[ns][object], a)
		if d.merged[ns] == nil {
			d.merged[ns] = map[netip.Addr]merged{}
		}
		have, ok := d.merged[ns][a]
		switch {
		case !ok:
			d.merged[ns][a] = merged{Hop: Hop{Addr: a, BFD: bfd}}
		case have.of == "" && bfd: // two annotations: BFD if either requests it
			have.BFD = true
			d.merged[ns][a] = have
		}
	}
	for _, ns := range r.snap.Namespaces {
		byName[ns.Name] = true
		for _, a := range ns.Static {
			if why := r.refuse(a); why != "" {
				r.recordRefusal(ns.Name, "annotation %s: %s %s", annotationGateways, a, why)
				continue
			}
			if why := r.ofNode(a); why != "" {
				r.recordRefusal(ns.Name, "annotation %s: %s %s", annotationGateways, a, why)
			}
			add(ns.Name, ns.Name, a, ns.BFD)
		}
		for _, text := range ns.Bad {
			r.recordRefusal(ns.Name, "annotation %s: %q is not an IP address", annotationGateways, text)
		}
	}
	for _, p := range r.snap.Announced {
		if !p.Ready {
			continue
		}
		for _, a := range r.announced(p) {
			for _, ns := range p.Routing {
				if byName[ns] {
					add(ns, p.Key, a, p.BFD)
				}
			}
		}
	}
}

// finish sets the properties that depend on all hops of a namespace.
func (d *decision) finish(ns string, byAddr map[netip.Addr]merged) []Hop {
	hops := make([]Hop, 0, len(byAddr))
	skip := map[topology.Family]bool{}
	for a, m := range byAddr {
		skip[topology.FamilyOf(a)] = skip[topology.FamilyOf(a)] || m.SkipSNAT
	}
	reported := map[string]bool{}
	for _, a := range slices.SortedFunc(maps.Keys(byAddr), netip.Addr.Compare) {
		m := byAddr[a]
		if m.BFD {
			m.Timers = d.timers[a].Timers
		}
		hops = append(hops, m.Hop)
		if skip[topology.FamilyOf(a)] && !m.SkipSNAT && m.of != "" && !d.cfg.DisableSNATMultipleGWs && !reported[m.of] {
			reported[m.of] = true
			d.results[m.of].conflicts = append(d.results[m.of].conflicts, problem{v1.ReasonOtherPoliciesSNAT,
				fmt.Sprintf("namespace %s: another hop of its %s pods has skipHostSNAT, so they are not translated at all",
					ns, topology.FamilyOf(a))})
		}
	}
	return hops
}

// list formats names for a message, limited to a few of them.
func list(names []string) string {
	const most = 3
	if len(names) <= most {
		return "namespace " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("namespaces %s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
