package master

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// decisions is the state of placement: the EgressIPs it has seen, and its last decisions.
type decisions struct {
	mu        sync.Mutex
	observed  map[string]types.UID // the EgressIPs whose events have arrived
	decided   map[string]types.UID // the UIDs of the EgressIPs in byKey
	byKey     map[string]egressip.Decision
	owners    map[netip.Addr]string          // the EgressIPs of the addresses
	reachable map[string]bool                // by node, whether it can remove its status entries itself
	former    map[netip.Addr]map[string]bool // nodes that held an address for an EgressIP that was deleted
}

func newDecisions() *decisions {
	return &decisions{observed: map[string]types.UID{}, decided: map[string]types.UID{},
		byKey: map[string]egressip.Decision{}, former: map[netip.Addr]map[string]bool{}}
}

// of returns the decision for an EgressIP; false before placement has seen it.
func (d *decisions) of(key string) (egressip.Decision, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	decision, ok := d.byKey[key]
	return decision, ok
}

// about returns the decision for an object; false before placement has seen that object.
func (d *decisions) about(e *v1.EgressIP) (egressip.Decision, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	decision, ok := d.byKey[e.Name]
	return decision, ok && d.decided[e.Name] == e.UID
}

// owned reports whether an address belongs to an EgressIP.
func (d *decisions) owned(key string, addr netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owners[addr] == key
}

// reach reports whether a node can remove its status entry itself; seen is false if
// placement has not seen the node.
func (d *decisions) reach(node string) (reachable, seen bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	reachable, seen = d.reachable[node]
	return reachable, seen
}

// met returns the EgressIPs whose events have arrived.
func (d *decisions) met() map[string]types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.observed)
}

// replace stores the decisions for the EgressIPs in met, and returns the keys of the EgressIPs whose
// decision is new, changed or gone. For each new or changed decision it calls changed with the
// previous and the new one, before others can see the new one.
func (d *decisions) replace(
	next map[string]egressip.Decision, met map[string]types.UID, reachable map[string]bool, changed func(key string, before, now egressip.Decision),
) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []string
	owners := map[netip.Addr]string{}
	for key, decision := range next {
		for _, p := range decision.Placements {
			if p.Addr.IsValid() && (p.Node != "" || p.Refused.Reason == egressip.NoNode) {
				owners[p.Addr] = key
			}
		}
		old, ok := d.byKey[key]
		if !ok || !old.Equal(decision) || d.decided[key] != met[key] {
			keys = append(keys, key)
			changed(key, old, decision)
		} else {
			next[key] = old // it has the reasons why addresses left their previous nodes
		}
	}
	for key := range d.byKey {
		if _, ok := next[key]; !ok {
			keys = append(keys, key)
		}
	}
	d.byKey, d.decided, d.owners, d.reachable = next, met, owners, reachable
	for a, nodes := range d.former { // the status entries of nodes that are down are removed, too
		for node := range nodes {
			if !reachable[node] {
				d.drop(a, node)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// observe records an event about an EgressIP, and remembers the holders of the addresses of
// a deleted one: nothing else knows them when another EgressIP gets the addresses. Placement
// considers only EgressIPs recorded here, since the lister may show a new one before the holders
// of its predecessors are recorded.
func (d *decisions) observe(old, new *v1.EgressIP) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if new != nil {
		d.observed[new.Name] = new.UID
		d.forgetHolders(new)
	}
	if old == nil || new != nil && old.UID == new.UID {
		return
	}
	if new == nil {
		delete(d.observed, old.Name)
	}
	for a, nodes := range egressip.Decode(old).Holders {
		for _, node := range nodes {
			d.keep(a, node)
		}
	}
}

// forgetHolders removes former holders that have an address for an EgressIP that exists: its status, or observe,
// says so from then on. mu is held.
func (d *decisions) forgetHolders(e *v1.EgressIP) {
	if len(d.former) == 0 {
		return
	}
	for a, nodes := range egressip.Decode(e).Holders {
		for _, node := range nodes {
			d.drop(a, node)
		}
	}
}

// drop removes a former holder; mu is held.
func (d *decisions) drop(a netip.Addr, node string) {
	if delete(d.former[a], node); len(d.former[a]) == 0 {
		delete(d.former, a)
	}
}

// keep adds a former holder; mu is held.
func (d *decisions) keep(a netip.Addr, node string) {
	if d.former[a] == nil {
		d.former[a] = map[string]bool{}
	}
	d.former[a][node] = true
}

// remember records a node that may have held an address for an EgressIP that was deleted before this process led.
func (d *decisions) remember(f egressip.Former) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keep(f.Addr, f.Node)
}

// formerHolders returns the nodes that held some of the addresses for a deleted EgressIP.
func (d *decisions) formerHolders(addrs map[netip.Addr]string) []egressip.Former {
	d.mu.Lock()
	defer d.mu.Unlock()
	var former []egressip.Former
	for a := range addrs {
		for node := range d.former[a] {
			former = append(former, egressip.Former{Addr: a, Node: node})
		}
	}
	return former
}

// forgetFormer removes former holders that are now in a status.
func (d *decisions) forgetFormer(former []egressip.Former) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range former {
		d.drop(f.Addr, f.Node)
	}
}
