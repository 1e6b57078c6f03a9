// Package metallb tests EgressServices with MetalLB as the load-balancer
// provider, as docs/egress-service.md describes it: the example with BGP and a
// router outside, with failovers, and the walkthrough with layer 2, which has
// both families. MetalLB's speakers of the native mode advertise IPv4 only.
//
// contrib/metallb/install.sh builds MetalLB and puts it into the cluster.
package metallb
