package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Size defines how many objects there are.
type Size struct {
	Name string `json:"name"`
	// Times is the factor by which Nodes and all numbers of objects are multiplied.
	Times int `json:"times"`
	// EgressNodes is the number of nodes that may hold egress addresses, ServiceHosts that of nodes that may
	// be hosts of EgressServices.
	Nodes        int `json:"nodes"`
	EgressNodes  int `json:"egressNodes"`
	ServiceHosts int `json:"serviceHosts"`

	EgressServices int `json:"egressServices"`
	Endpoints      int `json:"endpoints"` // of each
	EgressIPs      int `json:"egressIPs"`
	Addresses      int `json:"addresses"` // of each
	EgressIPPods   int `json:"egressIPPods"`
	Policies       int `json:"policies"`
	Hops           int `json:"hops"`
	PolicyPods     int `json:"policyPods"`
	// Services are Services without any egress feature.
	Services int `json:"services"`
	// Plain are pods that nothing selects, including those that events use: Spare.
	Plain int `json:"plainPods"`
}

// sizes are the sizes by name.
var sizes = map[string]Size{
	"tiny": {Nodes: 8, EgressNodes: 3, ServiceHosts: 2, EgressServices: 4, Endpoints: 3, EgressIPs: 4, Addresses: 2, EgressIPPods: 3,
		Policies: 2, Hops: 2, PolicyPods: 3, Services: 4, Plain: 20},
	"small": {Nodes: 100, EgressNodes: 20, ServiceHosts: 4, EgressServices: 200, Endpoints: 10, EgressIPs: 100, Addresses: 2, EgressIPPods: 20,
		Policies: 50, Hops: 2, PolicyPods: 20, Plain: 50},
	"egressips": {Nodes: 120, EgressNodes: 110, ServiceHosts: 4, EgressIPs: 3000, Addresses: 1, EgressIPPods: 2, Plain: 2000},
	"large": {Nodes: 120, EgressNodes: 100, ServiceHosts: 16, EgressServices: 1000, Endpoints: 10, EgressIPs: 12000, Addresses: 1, EgressIPPods: 2,
		Policies: 50, Hops: 2, PolicyPods: 20, Services: 10000, Plain: 15000},
}

// SizeOf returns the size with the given name, multiplied by times.
func SizeOf(name string, times int) (Size, error) {
	s, ok := sizes[name]
	if !ok || times < 1 {
		return s, fmt.Errorf("no size %q, %d times; there are %s", name, times, strings.Join(slices.Sorted(maps.Keys(sizes)), ", "))
	}
	s.Name, s.Times = name, times
	for _, n := range []*int{&s.Nodes, &s.EgressNodes, &s.ServiceHosts, &s.EgressServices, &s.EgressIPs, &s.Policies, &s.Services, &s.Plain} {
		*n *= times
	}
	return s, nil
}

// Pods returns the number of all pods.
func (s Size) Pods() int {
	return s.EgressServices*s.Endpoints + s.EgressIPs*s.EgressIPPods + s.Policies*s.PolicyPods + s.Plain
}

// masters is the number of nodes on which masters run, the first ones. They are neither lost nor selected by anything.
const masters = 2

// isEgressNode reports whether a node may hold egress addresses.
func (s Size) isEgressNode(i int) bool { return i >= masters && i < masters+s.EgressNodes }

// isServiceHost reports whether a node may be the host of EgressServices; no node is both.
func (s Size) isServiceHost(i int) bool { return i >= s.Nodes-s.ServiceHosts && i < s.Nodes }
