package snapshot

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressipinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
)

// byAddress is the name of the index of objects by the addresses they own.
const byAddress = "reserved-address"

// apiServer is the key of the EndpointSlice that the API servers maintain themselves.
const apiServer = "default/kubernetes"

// Informers are the sources of owners. The caller starts them.
type Informers struct {
	// Nodes are all nodes.
	Nodes          coreinformers.NodeInformer
	EndpointSlices discoveryinformers.EndpointSliceInformer
	// EgressIPs is nil if they are not enabled.
	EgressIPs egressipinformers.EgressIPInformer
	// APIServers are where the cluster is configured to reach its API servers, as of NewAPIServers, in addition to their
	// EndpointSlice; nil: unknown.
	APIServers cache.SharedIndexInformer
}

// Addresses knows the owners of addresses. It reads the informers' caches.
type Addresses struct {
	Ranges    reserved.Ranges
	informers []cache.SharedIndexInformer
	indexed   []cache.Indexer
	nodes     cache.Indexer
	servers   []cache.Indexer                       // with EndpointSlices of API servers
	onNode    *kube.Memo[corev1.Node, []netip.Addr] // hostsIn
	// hosts are the informers of objects with addresses of hosts: nodes and API servers.
	hosts []cache.SharedIndexInformer
}

// New returns Addresses. Call it before the informers start; several Addresses can share informers.
func New(ranges reserved.Ranges, in Informers) (*Addresses, error) {
	servers := []cache.SharedIndexInformer{in.EndpointSlices.Informer()}
	if in.APIServers != nil {
		servers = append(servers, in.APIServers)
	}
	a := &Addresses{Ranges: ranges, nodes: in.Nodes.Informer().GetIndexer(), hosts: append(servers, in.Nodes.Informer())}
	for _, inf := range servers {
		a.servers = append(a.servers, inf.GetIndexer())
	}
	var err error
	if a.onNode, err = kube.NewMemo(in.Nodes.Informer(), func(n *corev1.Node) []netip.Addr { return hostsIn(n) }); err != nil {
		return nil, err
	}
	owning := []cache.SharedIndexInformer{in.Nodes.Informer()}
	if in.EgressIPs != nil {
		owning = append(owning, in.EgressIPs.Informer())
	}
	for _, inf := range owning {
		a.indexed = append(a.indexed, inf.GetIndexer())
		if _, ok := inf.GetIndexer().GetIndexers()[byAddress]; ok {
			continue
		}
		if err := inf.AddIndexers(cache.Indexers{byAddress: index}); err != nil {
			return nil, fmt.Errorf("index by address: %w", err)
		}
	}
	a.informers = slices.Concat(owning, servers)
	return a, nil
}

func index(obj any) ([]string, error) {
	var keys []string
	for addr := range ownersIn(obj) {
		keys = append(keys, addr.String())
	}
	return keys, nil
}

// Owners returns the owners of an address, in the order in which they are reported.
func (a *Addresses) Owners(addr netip.Addr) []reserved.Owner {
	var owners []reserved.Owner
	for _, indexer := range a.indexed {
		objs, err := indexer.ByIndex(byAddress, addr.String())
		if err != nil {
			continue // the index exists: New added it
		}
		for _, obj := range objs {
			owners = append(owners, ownersIn(obj)[addr]...)
		}
	}
	for _, slice := range a.apiServers() {
		owners = append(owners, ownersIn(slice)[addr]...)
	}
	reserved.Sort(owners)
	return owners
}

// Inside returns the ranges of pods and Services, and the addresses of hosts: destinations that egress features do
// not apply to.
func (a *Addresses) Inside() []netip.Prefix {
	inside := slices.Concat(a.Ranges.Pods, a.Ranges.Services)
	for _, addr := range a.Hosts() {
		inside = append(inside, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return inside
}

// Hosts returns the addresses of nodes and API servers, unsorted and possibly with duplicates.
func (a *Addresses) Hosts() []netip.Addr {
	var all []netip.Addr
	for _, obj := range a.nodes.List() {
		if n, ok := obj.(*corev1.Node); ok {
			all = append(all, a.onNode.Of(n.Name, n)...)
		}
	}
	return append(all, a.APIServers()...)
}

// HostsOf returns the addresses of one node, none if it is not known.
func (a *Addresses) HostsOf(node string) []netip.Addr {
	obj, _, err := a.nodes.GetByKey(node)
	if n, ok := obj.(*corev1.Node); ok && err == nil {
		return slices.Clone(a.onNode.Of(n.Name, n))
	}
	return nil
}

// APIServers returns the addresses of the API servers, from their EndpointSlice and the configuration, possibly with
// duplicates.
func (a *Addresses) APIServers() []netip.Addr { return APIServersIn(a.apiServers()) }

// apiServers returns the EndpointSlices of API servers.
func (a *Addresses) apiServers() []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for _, indexer := range a.servers {
		obj, ok, err := indexer.GetByKey(apiServer)
		if slice, is := obj.(*discoveryv1.EndpointSlice); err == nil && ok && is {
			all = append(all, slice)
		}
	}
	return all
}

// APIServersIn returns the addresses of the API servers, from those of the given EndpointSlices that are theirs.
func APIServersIn(all []*discoveryv1.EndpointSlice) []netip.Addr {
	var addrs []netip.Addr
	for _, s := range all {
		if s.Namespace+"/"+s.Name == apiServer {
			addrs = append(addrs, hostsIn(s)...)
		}
	}
	return addrs
}

// hostsIn returns the addresses of hosts in an object.
func hostsIn(obj any) []netip.Addr {
	var hosts []netip.Addr
	for addr, owners := range ownersIn(obj) {
		if slices.ContainsFunc(owners, reserved.Owner.IsHost) {
			hosts = append(hosts, addr)
		}
	}
	slices.SortFunc(hosts, netip.Addr.Compare)
	return hosts
}

// WatchHosts makes q reconcile what keys returns when the addresses of a node or of the API servers change.
func (a *Addresses) WatchHosts(q *queue.Controller, keys func() []string) error {
	for _, inf := range a.hosts {
		if err := q.Watch(inf, func(old, new any) []string { return hostKeys(keys, old, new) }); err != nil {
			return err
		}
	}
	return nil
}

// HostsSynced reports whether Hosts is complete: all nodes and API servers have been listed.
func (a *Addresses) HostsSynced() bool {
	return !slices.ContainsFunc(a.hosts, func(inf cache.SharedIndexInformer) bool { return !inf.HasSynced() })
}

// hostKeys returns the keys if two states of an object have different addresses of hosts.
func hostKeys(keys func() []string, old, new any) []string {
	if slices.Equal(hostsIn(old), hostsIn(new)) {
		return nil
	}
	return keys()
}

// Watch makes q reconcile what keys returns for the addresses whose owners have, or may have, changed.
func (a *Addresses) Watch(q *queue.Controller, keys func(addrs []netip.Addr) []string) error {
	for _, inf := range a.informers {
		err := q.Watch(inf, func(old, new any) []string {
			addrs := changed(old, new)
			if len(addrs) == 0 {
				return nil
			}
			return keys(addrs)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// changed returns the addresses whose owners differ between two states of an object.
func changed(old, new any) []netip.Addr {
	before, after := ownersIn(old), ownersIn(new)
	var addrs []netip.Addr
	for addr, owners := range before {
		if !slices.EqualFunc(owners, after[addr], same) {
			addrs = append(addrs, addr)
		}
	}
	for addr := range after {
		if _, ok := before[addr]; !ok {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}

func same(a, b reserved.Owner) bool {
	return a.Kind == b.Kind && a.Name == b.Name && slices.Equal(a.Ports, b.Ports) && a.Extra == b.Extra
}

// ownersIn returns the addresses in an object, with their owners.
func ownersIn(obj any) map[netip.Addr][]reserved.Owner {
	all := map[netip.Addr][]reserved.Owner{}
	add := func(addr netip.Addr, o reserved.Owner) {
		addr = addr.Unmap()
		// An owner that has an address for two reasons is the owner that it is for the first.
		known := slices.ContainsFunc(all[addr], func(b reserved.Owner) bool { return b.Kind == o.Kind && b.Name == o.Name })
		if addr.IsValid() && !known {
			all[addr] = append(all[addr], o)
		}
	}
	addText := func(text string, o reserved.Owner) {
		if addr, err := netip.ParseAddr(text); err == nil {
			add(addr, o)
		}
	}
	switch o := obj.(type) {
	case *corev1.Node:
		addNode(o, add, addText)
	case *egressipv1.EgressIP:
		// Addresses that are only requested do not belong to anybody yet.
		owner := reserved.Owner{Kind: reserved.EgressIP, Name: o.Name}
		for _, item := range o.Status.Items {
			addText(item.EgressIP, owner)
		}
		for _, word := range o.Status.Programmed {
			for _, text := range word.EgressIPs {
				addText(text, owner)
			}
		}
	case *discoveryv1.EndpointSlice:
		if o.Namespace+"/"+o.Name != apiServer {
			break
		}
		owner := reserved.Owner{Kind: reserved.APIServer}
		for _, p := range o.Ports {
			if p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
				owner.Ports = append(owner.Ports, uint16(*p.Port))
			}
		}
		for _, e := range o.Endpoints {
			for _, text := range e.Addresses {
				addText(text, owner)
			}
		}
	}
	return all
}

// addNode adds the addresses in a node's annotations, and those that Kubernetes knows before the node has set any.
func addNode(n *corev1.Node, add func(netip.Addr, reserved.Owner), addText func(string, reserved.Owner)) {
	// Invalid annotations are treated as absent; the others are used.
	node, _ := kube.Node(n)
	owner := reserved.Owner{Kind: reserved.Node, Name: n.Name}
	for _, p := range slices.Concat(node.Primary, node.Gateway.Addrs) {
		add(p.Addr(), owner)
	}
	for _, address := range n.Status.Addresses {
		if address.Type == corev1.NodeInternalIP || address.Type == corev1.NodeExternalIP {
			addText(address.Address, owner)
		}
	}
	extra := owner
	extra.Extra = true
	for _, p := range node.Host {
		if !p.IsSingleIP() {
			add(p.Addr(), owner)
		}
	}
	for _, p := range node.Host {
		if p.IsSingleIP() {
			add(p.Addr(), extra)
		}
	}
	for _, hop := range node.Gateway.NextHops {
		add(hop, reserved.Owner{Kind: reserved.Gateway, Name: n.Name})
	}
}
