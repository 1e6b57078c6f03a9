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

// keepNeighbors adds this node's pods, and the router that leads to all other pods, to the
// kernel's neighbor table. Otherwise the kernel resolves them repeatedly through the
// management port, and for IPv6 ovn-controller has to answer: if that is not running,
// replies that the kernel forwards to pods would stop after half a minute. Without an entry
// the kernel resolves the address itself, so a failure is only logged. While the node's subnets are
// not known, as when its Node object was deleted and created again, the table stays as it is.
func (s *Server) keepNeighbors(ctx context.Context) {
	s.neighbors.Lock()
	defer s.neighbors.Unlock()
	subnets := s.pods.subnets()
	if len(subnets) == 0 {
		return
	}
	ours, err := s.ours(ctx)
	if err == nil {
		want, mac := map[netip.Addr]string{}, topology.RouterMAC(subnets)
		for _, subnet := range subnets {
			want[topology.RouterAddr(subnet)] = mac
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
		klog.ErrorS(err, "Cannot add neighbor entries at the management port, the kernel will resolve them")
	}
}
