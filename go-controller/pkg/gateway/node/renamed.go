package node

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
)

// renamed returns the new name of the uplink of a bridge that ovnkube created, if there is no link
// with the previous name: the link with its MAC address, which the bridge also has. If the configuration
// names the uplink, no other link is searched for.
func (g *Gateway) renamed(ctx context.Context, p physicalNetwork, was string, have ovs.Bridge) (string, error) {
	rec, err := gateway.ParseRecord(have.ExternalIDs[idAttachment])
	if err != nil {
		return "", fmt.Errorf("bridge %s: %w", have.Name, err)
	}
	if !rec.Created || have.MAC == "" || p.iface == was {
		return "", fmt.Errorf("uplink %s of bridge %s does not exist", was, have.Name)
	}
	found, err := link.WithMAC(have.MAC, have.Name)
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", fmt.Errorf("uplink %s of bridge %s does not exist, and no interface has its MAC address %s: give the one that replaces it as %s",
			was, have.Name, have.MAC, p.flag)
	case len(found) > 1:
		return "", fmt.Errorf("uplink %s of bridge %s does not exist, and %q have its MAC address %s: give one as %s",
			was, have.Name, found, have.MAC, p.flag)
	}
	klog.InfoS("The uplink has another name", "bridge", have.Name, "before", was, "now", found[0])
	return found[0], g.OVS.DeletePort(ctx, have.Name, was)
}
