// Package metallb tests EgressServices with MetalLB as the load-balancer provider, as described in
// docs/egress-service.md: the example with BGP and an outside router, with failovers, and the
// walkthrough with layer 2, in both families. MetalLB's speakers in native mode advertise IPv4
// only.
//
// contrib/metallb/install.sh builds MetalLB and installs it in the cluster.
package metallb
