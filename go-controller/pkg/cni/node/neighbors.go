package node

import (
	"context"
	"net/netip"
	"strings"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/neighbor"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// keepNeighbors has the kernel know the MAC addresses of the pods of this node and of
// the router before the others. Otherwise it asks for them by the management port again
// and again, and for IPv6 ovn-controller has to answer: where that does not run, replies
// that the kernel forwards to pods would end after half a minute. Without an entry the
// kernel asks, so that a failure is logged only.
func (s *Server) keepNeighbors(ctx context.Context) {
	s.neighbors.Lock()
	defer s.neighbors.Unlock()
	ours, err := s.ours(ctx)
	if err == nil {
		want := map[netip.Addr]string{}
		if subnets := s.pods.subnets(); len(subnets) > 0 {
			mac := topology.RouterMAC(subnets)
			for _, subnet := range subnets {
				want[topology.RouterAddr(subnet)] = mac
			}
		}
		for _, p := range ours {
			for text := range strings.SplitSeq(p.ExternalIDs[cni.IDAddrs], ",") {
				if a, err := netip.ParsePrefix(text); err == nil {
					want[a.Addr()] = p.ExternalIDs[cni.IDMAC]
				}
			}
		}
		err = neighbor.SetPermanent(topology.ManagementPort, want)
	}
	if err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "Could not tell the kernel of the neighbours at the management port, it will ask for them")
	}
}
