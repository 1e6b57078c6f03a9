package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Values of accept_ra: a link takes in router advertisements as long as the host does
// not forward, or in any case.
const (
	acceptHost   = "1"
	acceptAlways = "2"
)

// keepAdvertisements lets the host go on taking in router advertisements when it
// begins to forward. Otherwise the kernel forgets the default routes that it has
// learned, and ignores what comes later. A link that has ignored them is left alone.
func (g *Gateway) keepAdvertisements(ctx context.Context) error {
	if !slices.Contains(g.Families, topology.IPv6) || !link.HasIPv6() {
		return nil
	}
	var links []string
	for _, p := range g.physicalNetworks() {
		bridge, uplink, _, err := g.discover(ctx, p)
		if err != nil && p.second() {
			continue // the others do not wait for it
		}
		if err != nil {
			return fmt.Errorf("find the uplink: %w", err)
		}
		links = append(links, bridge, uplink)
	}
	want := map[string]string{}
	for _, name := range links {
		accepts, err := acceptsAdvertisements(name)
		if err != nil {
			return err
		}
		if accepts {
			want[fmt.Sprintf("net/ipv6/conf/%s/accept_ra", name)] = acceptAlways
		}
	}
	return g.Settings.Apply(ctx, gateway.Contributor+"-advertisements", want)
}

// acceptsAdvertisements reports whether a link takes in router advertisements now; one
// that does not exist does not.
func acceptsAdvertisements(name string) (bool, error) {
	accept, err := link.Sysctl(topology.IPv6, name, "accept_ra")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || accept != acceptHost {
		return accept == acceptAlways, err
	}
	forwarding, err := link.Sysctl(topology.IPv6, name, "forwarding")
	return forwarding == "0", err
}

// withoutAdvertised leaves out the routes that the kernel has from router advertisements
// where the uplink takes them in: each of uplink and bridge gets its own, for which it
// asks when it comes up. A copy would make the kernel refuse the advertisement, with the
// addresses in it, and would stay when the router goes.
func withoutAdvertised(uplink string, from host.Attachment) (host.Attachment, error) {
	accepts, err := acceptsAdvertisements(uplink)
	if err != nil || !accepts {
		return from, err
	}
	from.Routes = slices.DeleteFunc(slices.Clone(from.Routes), func(r host.LinkRoute) bool { return r.Protocol == unix.RTPROT_RA })
	return from, nil
}

// passAdvertisements has a link take in router advertisements where another does, in
// whose place it comes.
func passAdvertisements(from, to string) error {
	accepts, err := acceptsAdvertisements(from)
	if err != nil || !accepts {
		return err
	}
	return link.SetLinkSysctl(topology.IPv6, to, "accept_ra", acceptAlways)
}

// askRouters has the kernel ask for routers on a link that takes in router
// advertisements, which it does when IPv6 comes up. It takes addresses off the link.
func askRouters(name string) error {
	accepts, err := acceptsAdvertisements(name)
	if err != nil || !accepts {
		return err
	}
	for _, off := range []string{"1", "0"} {
		if err := link.SetLinkSysctl(topology.IPv6, name, "disable_ipv6", off); err != nil {
			return err
		}
	}
	return nil
}
