package master

import (
	"maps"
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// auditKind is the kind of the objects in the audit log.
const auditKind = "EgressService"

func auditScope(key string) string     { return auditKind + "/" + key }
func auditPodsScope(key string) string { return auditKind + " pods/" + key }

func auditObject(eg *v1.EgressService) audit.Object {
	return audit.Object{Kind: auditKind, Namespace: eg.Namespace, Name: eg.Name, UID: string(eg.UID)}
}

// assignments returns the addresses that a status assigns to its host.
func assignments(eg *v1.EgressService, s egressservice.Service, host string) []audit.Fact {
	switch host {
	case "":
		return nil
	case v1.HostAll: // each node's routes determine the address
		return []audit.Fact{{Object: auditObject(eg), Node: host}}
	}
	var facts []audit.Fact
	for _, a := range s.Ingress {
		facts = append(facts, audit.Fact{Object: auditObject(eg), Address: a, Node: host})
	}
	return facts
}

// uses returns the pods that policies lead to the host, with their addresses there:
// while the host has not acknowledged new ones, the previous ones.
func (c *Controller) uses(eg *v1.EgressService, s egressservice.Service, now egressservice.Steering, acknowledged bool, before []audit.Fact) []audit.Fact {
	was := map[string]audit.Fact{}
	for _, f := range before {
		was[f.Pod.Address] = f
	}
	var facts []audit.Fact
	for _, own := range slices.SortedFunc(maps.Keys(now), netip.Addr.Compare) {
		to, ok := topology.AddrOf(topology.FamilyOf(own), s.Ingress)
		last, known := was[own.String()]
		if known && !acknowledged {
			to, ok = last.Address, true
		}
		if !now[own].IsValid() || !ok {
			continue
		}
		f := audit.Fact{Object: auditObject(eg), Address: to}
		if p := c.reader.PodAt(eg.Namespace, own); p != nil {
			f.Pod = &audit.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Address: own.String(), Node: p.Spec.NodeName}
		} else if f.Pod = last.Pod; !known {
			continue // the pod of this address is no longer known
		}
		facts = append(facts, f)
	}
	return facts
}

// auditFound records the state that this leader found.
func (c *Controller) auditFound(eg *v1.EgressService, s egressservice.Service) {
	if c.deps.Audit == nil || !c.deps.Audit.Expects(auditScope(s.Key)) {
		return
	}
	now := egressservice.SteeringOf(c.deps.Writer.Rows(egressservice.Owner(s.Key)))
	c.deps.Audit.Found(auditScope(s.Key), assignments(eg, s, c.known(eg).Host))
	c.deps.Audit.Found(auditPodsScope(s.Key), c.uses(eg, s, now, true, nil))
}

// auditHost records the host in the status that was just written. The lister may still
// show another one.
func (c *Controller) auditHost(eg *v1.EgressService, s egressservice.Service, d egressservice.Decision, host string) {
	if c.deps.Audit == nil {
		return
	}
	c.deps.Audit.Set(auditScope(s.Key), assignments(eg, s, host), func(f audit.Fact, from string, gone bool) (string, string) {
		why := egressservice.RejectionReason(s, d)
		switch {
		case f.Object.UID != string(eg.UID):
			return audit.ReasonObjectDeleted, ""
		case gone && host == "":
			return string(why.Reason), why.Message
		case gone:
			return audit.ReasonAddressRemoved, ""
		case from == "":
			return eventAssigned, ""
		case d.Left == "":
			return eventMoved, ""
		}
		return eventMoved, from + " " + d.Left
	})
}

// auditPods records the pods that the newly written policies lead to the host.
func (c *Controller) auditPods(eg *v1.EgressService, s egressservice.Service, d egressservice.Decision, now egressservice.Steering) {
	if c.deps.Audit == nil {
		return
	}
	scope := auditPodsScope(s.Key)
	facts := c.uses(eg, s, now, egressservice.Acknowledged(s, d), c.deps.Audit.Current(scope))
	c.deps.Audit.Set(scope, facts, func(f audit.Fact, _ string, gone bool) (string, string) {
		own, _ := netip.ParseAddr(f.Pod.Address)
		p := c.reader.PodAt(eg.Namespace, own)
		why := egressservice.RejectionReason(s, d)
		switch {
		case !gone:
			return egressservice.ReasonProgrammed, ""
		case f.Object.UID != string(eg.UID):
			return audit.ReasonObjectDeleted, ""
		case p == nil || p.Name != f.Pod.Name || f.Pod.UID != string(p.UID):
			return audit.ReasonPodDeleted, ""
		case why != (egressservice.Refusal{}):
			return string(why.Reason), why.Message
		case d.Host == v1.HostAll:
			return egressservice.ReasonEveryNode, ""
		case now[own].IsValid():
			return audit.ReasonAddressRemoved, ""
		case slices.ContainsFunc(s.Endpoints, func(e egressservice.Endpoint) bool { return e.Addr == own }):
			return egressservice.ReasonWaitingForHost, ""
		}
		return audit.ReasonNotSelected, ""
	})
}

// auditDeleted records that an EgressService and its policies were deleted.
func (c *Controller) auditDeleted(key string) {
	if c.deps.Audit == nil {
		return
	}
	for _, scope := range []string{auditPodsScope(key), auditScope(key)} {
		c.deps.Audit.Set(scope, nil, func(audit.Fact, string, bool) (string, string) { return audit.ReasonObjectDeleted, "" })
	}
}
