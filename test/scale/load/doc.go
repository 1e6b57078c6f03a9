// Package load creates the objects of a cluster of a given size: nodes, pods, Services and
// objects of the egress features, through the API server.
//
// No kubelet and no controller runs: package agents does their work for nodes and pods.
// EndpointSlices and load balancer addresses, which controllers would add to Services, are created
// here.
package load
