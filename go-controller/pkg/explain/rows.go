package explain

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// podStates returns the rows that the pods of an EgressIP get if every node has
// acknowledged its assignment. before are their previous rows.
func (c *Cluster) podStates(before map[string]egressip.State) map[string]egressip.State {
	states := map[string]egressip.State{}
	for _, p := range c.snap.Pods {
		keys, addrs := c.selecting(p), podAddrs(p)
		if !kube.NeedsNetwork(p) || len(keys) == 0 || len(addrs) == 0 {
			continue
		}
		obj := c.egressIPs[keys[0]]
		e := egressip.Decode(obj)
		digest := func(given []netip.Addr) string { return c.members.Digest(e.Key, given) }
		key := kube.PodKey(p)
		was, ok := before[key]
		if !ok {
			was = egressip.NewState()
		}
		states[key], _ = egressip.Steering{
			EgressIP: e, Pod: egressip.Pod{Key: key, Addrs: addrs}, Paths: c.placed[e.Key].Paths(obj.Status, addrs, digest, c.live), Now: was, Applied: was,
			Owned: func(name string, a netip.Addr) bool {
				return c.egressIPs[name] != nil && slices.Contains(egressip.Decode(c.egressIPs[name]).Addrs(), a)
			},
		}.Settled()
	}
	return states
}

// rows returns the rows of the features in the northbound database once all decisions
// are carried out, as text.
func (c *Cluster) rows() map[Row]bool {
	all := map[Row]bool{}
	add := func(o nb.Owner, rows []nb.Row) {
		for _, r := range rows {
			all[Row{Owner: o.String(), Row: nb.Text(table(r), r)}] = true
		}
	}
	var byIP, byService []netip.Addr
	for key, state := range c.states {
		add(egressip.Owner(key), state.Rows())
		byIP = append(byIP, state.Addrs()...)
	}
	for key, s := range c.services {
		d := c.hosted[key]
		add(egressservice.Owner(key), egressservice.Rows(s, d, nil))
		byService = append(append(byService, egressservice.Rerouted(s, d)...), egressservice.PendingPods(s, d)...)
	}
	for _, set := range []struct {
		set   noreroute.Set
		addrs []netip.Addr
	}{{noreroute.EgressIPPods, byIP}, {noreroute.EgressServicePods, byService}} {
		for _, a := range set.addrs {
			all[Row{Owner: set.set.Owner().String(), Row: nbdb.AddressSetTable + " " + set.set.Name(topology.FamilyOf(a)) + ": " + a.String()}] = true
		}
	}
	c.gatewayRows(slices.Concat(byIP, byService), add)
	return all
}

// gatewayRows adds the rows of the nodes whose pods have external gateways.
func (c *Cluster) gatewayRows(rerouted []netip.Addr, add func(nb.Owner, []nb.Row)) {
	if !c.snap.Settings.ExternalGateways {
		return
	}
	on := map[string][]*corev1.Pod{}
	for _, p := range c.snap.Pods {
		if kube.NeedsNetwork(p) && (c.routeConfig.DisableSNATMultipleGWs || len(c.routes.Hops[p.Namespace]) > 0) {
			on[p.Spec.NodeName] = append(on[p.Spec.NodeName], p)
		}
	}
	elsewhere := map[netip.Addr]bool{}
	for _, a := range rerouted {
		elsewhere[a] = true
	}
	for name, pods := range on {
		at := externalroute.NodeSnapshot{Node: c.nodes[name].Node, Rerouted: elsewhere}
		taken := map[nb.Slot]bool{}
		for _, p := range pods {
			key := kube.PodKey(p)
			at.Pods = append(at.Pods, externalroute.Pod{Key: key, Namespace: p.Namespace, Addrs: podAddrs(p)})
			for site := range c.states[key].NATs {
				taken[nb.Slot{Router: topology.GatewayRouter(site.Node), Source: site.Pod.String()}] = true
			}
		}
		add(externalroute.Owner(name), slices.DeleteFunc(externalroute.NodeRows(c.routeConfig, c.routes, at), func(r nb.Row) bool {
			slot, _ := nb.SlotOf(r.Parent, r.Model)
			return r.Yields && taken[slot]
		}))
	}
}

// table returns the table of a feature's row.
func table(r nb.Row) string {
	switch r.Model.(type) {
	case *nbdb.LogicalRouterPolicy:
		return nbdb.LogicalRouterPolicyTable
	case *nbdb.LogicalRouterStaticRoute:
		return nbdb.LogicalRouterStaticRouteTable
	case *nbdb.NAT:
		return nbdb.NATTable
	case *nbdb.BFD:
		return nbdb.BFDTable
	case *nbdb.AddressSet:
		return nbdb.AddressSetTable
	}
	return ""
}
