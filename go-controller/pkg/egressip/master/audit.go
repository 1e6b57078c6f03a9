package master

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// auditKind is the kind of the objects in the audit log.
const auditKind = "EgressIP"

func auditScope(name string) string   { return auditKind + "/" + name }
func auditPodScope(key string) string { return auditKind + " pods/" + key }

// assignments returns the items of a status as facts for the audit log: an address counts as
// assigned to its previous node until that node is to release it.
func assignments(e *v1.EgressIP, status v1.EgressIPStatus) []audit.Fact {
	facts := make([]audit.Fact, 0, len(status.Items))
	for _, item := range status.Items {
		if a, err := netip.ParseAddr(item.EgressIP); err == nil {
			facts = append(facts, audit.Fact{Object: audit.Object{Kind: auditKind, Name: e.Name, UID: string(e.UID)}, Address: a, Node: cmp.Or(item.From, item.Node)})
		}
	}
	return facts
}

// auditFound records the assignments that this leader found.
func (c *Controller) auditFound(e *v1.EgressIP) {
	if log := c.deps.Audit; log != nil && log.Expects(auditScope(e.Name)) {
		log.Found(auditScope(e.Name), assignments(e, c.written.last(e).Status))
	}
}

// auditAssignments records the status that was just written. The status is an argument since
// the lister may show an older one.
func (c *Controller) auditAssignments(e *v1.EgressIP, now v1.EgressIPStatus, d egressip.Decision) {
	if c.deps.Audit == nil {
		return
	}
	c.deps.Audit.Set(auditScope(e.Name), assignments(e, now), func(f audit.Fact, from string, gone bool) (string, string) {
		if f.Object.UID != string(e.UID) {
			return audit.ReasonObjectDeleted, ""
		}
		i := slices.IndexFunc(d.Placements, func(p egressip.Placement) bool { return p.Addr == f.Address })
		switch {
		case i < 0:
			return audit.ReasonAddressRemoved, ""
		case gone:
			return string(d.Placements[i].Refused.Reason), d.Placements[i].Refused.Message
		case from == "":
			return egressip.EventAssigned, ""
		case d.Placements[i].Left == "":
			return egressip.EventMoved, ""
		}
		return egressip.EventMoved, from + " " + d.Placements[i].Left
	})
}

// auditDeleted records that an EgressIP was deleted.
func (c *Controller) auditDeleted(name string) {
	if c.deps.Audit != nil {
		c.deps.Audit.Set(auditScope(name), nil, func(audit.Fact, string, bool) (string, string) { return audit.ReasonObjectDeleted, "" })
	}
}

// uses returns the addresses that the policies of a pod lead to. They are attributed to p
// if it exists and has the pod address.
func (c *Controller) uses(key string, p *corev1.Pod, addrs []netip.Addr, s egressip.State) []audit.Fact {
	namespace, name, _ := strings.Cut(key, "/")
	var facts []audit.Fact
	for own, policy := range s.Policies {
		egress := map[netip.Addr]bool{}
		for _, hop := range policy.Hops {
			if a, ok := policy.Egress[hop]; ok {
				egress[a] = true
			}
		}
		if len(policy.Hops) > 0 && len(egress) == 0 { // rows of a version that did not record the egress addresses
			for site, a := range s.NATs {
				egress[a] = egress[a] || site.Pod == own
			}
			maps.DeleteFunc(egress, func(_ netip.Addr, is bool) bool { return !is })
		}
		object := audit.Object{Kind: auditKind, Name: policy.EgressIP}
		if e, err := c.deps.EgressIPs.Lister().Get(policy.EgressIP); err == nil {
			object.UID = string(e.UID)
		}
		pod := audit.Pod{Namespace: namespace, Name: name, Address: own.String()}
		if p != nil && slices.Contains(addrs, own) {
			pod.UID, pod.Node = string(p.UID), p.Spec.NodeName
		}
		for a := range egress {
			facts = append(facts, audit.Fact{Object: object, Address: a, Pod: &pod})
		}
	}
	return facts
}

// auditPodFound records the addresses that this leader found for a pod.
func (c *Controller) auditPodFound(key string, p *corev1.Pod, addrs []netip.Addr) {
	if log := c.deps.Audit; log != nil && log.Expects(auditPodScope(key)) {
		log.Found(auditPodScope(key), c.uses(key, p, addrs, egressip.StateOf(c.deps.Writer.Rows(egressip.Owner(key)))))
	}
}

// auditPod records the addresses of a pod after its rows were written. reason says why the pod
// no longer has an address of its EgressIP; it is "" if it has one. keys are the pod's EgressIPs.
func (c *Controller) auditPod(key string, p *corev1.Pod, addrs []netip.Addr, s egressip.State, keys []string, reason string) {
	if c.deps.Audit == nil {
		return
	}
	c.deps.Audit.Set(auditPodScope(key), c.uses(key, p, addrs, s), func(f audit.Fact, _ string, gone bool) (string, string) {
		switch {
		case !gone:
			return egressip.ReasonProgrammed, ""
		case reason != "":
			return reason, ""
		case p != nil && f.Pod.UID != "" && f.Pod.UID != string(p.UID):
			return audit.ReasonPodDeleted, ""
		case !slices.Contains(keys, f.Object.Name):
			return audit.ReasonNotSelected, ""
		case f.Object.Name != keys[0]:
			return egressip.ReasonOlderWins, "EgressIP " + keys[0] + " has the pod"
		}
		if d, ok := c.decisions.of(f.Object.Name); ok && d.Nodes()[f.Address] == "" {
			return egressip.ReasonNotAssigned, ""
		}
		return egressip.ReasonWaitingForNode, ""
	})
}
