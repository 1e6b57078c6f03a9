package node

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
)

// errNoUplink says that no link is the uplink of a bridge, whatever its name.
var errNoUplink = errors.New("does not exist")

// newName returns the present name of an uplink of a bridge that ovnkube created: the link with its MAC address,
// which the bridge also has. The error is errNoUplink if there is none.
func newName(was string, have ovs.Bridge) (string, error) {
	if have.MAC == "" {
		return "", fmt.Errorf("uplink %s of bridge %s %w", was, have.Name, errNoUplink)
	}
	found, err := link.WithMAC(have.MAC, have.Name)
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", fmt.Errorf("uplink %s of bridge %s %w, and no interface has its MAC address %s", was, have.Name, errNoUplink, have.MAC)
	case len(found) > 1:
		return "", fmt.Errorf("uplink %s of bridge %s does not exist, and %q have its MAC address %s", was, have.Name, found, have.MAC)
	}
	klog.InfoS("The uplink has another name", "bridge", have.Name, "before", was, "now", found[0])
	return found[0], nil
}

// renamed returns the new name of the uplink of a bridge, if there is no link with the previous name. If the
// configuration names the uplink, no other link is searched for.
func (g *Gateway) renamed(ctx context.Context, p physicalNetwork, was string, have ovs.Bridge) (string, error) {
	rec, err := gateway.ParseRecord(have.ExternalIDs[idAttachment])
	if err != nil {
		return "", fmt.Errorf("bridge %s: %w", have.Name, err)
	}
	if !rec.Created || have.MAC == "" || p.iface == was {
		return "", fmt.Errorf("uplink %s of bridge %s %w", was, have.Name, errNoUplink)
	}
	now, err := newName(was, have)
	if err != nil {
		return "", fmt.Errorf("%w: give the one that replaces it as %s", err, p.flag)
	}
	return now, g.OVS.DeletePort(ctx, have.Name, was)
}
