// Package load makes the objects of a cluster of a given size: nodes, pods, Services and
// what the egress features serve, through the API server.
//
// No kubelet and no controller runs: agents does for nodes and pods what those would.
// What a controller would add to Services, slices and addresses of load balancers, is made
// here.
package load
