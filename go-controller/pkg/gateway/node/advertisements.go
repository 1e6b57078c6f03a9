package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/attachment"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/settings"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// acceptParameter is the name of the parameter accept_ra. Its values: a link accepts router advertisements while the host does
// not forward, or in any case.
const (
	acceptParameter = "accept_ra"
	acceptHost      = "1"
	acceptAlways    = "2"
)

// keepAdvertisements keeps the host accepting router advertisements when it
// starts to forward, on the uplinks and on the links to other networks, which may be those of EgressIPs.
// Otherwise the kernel removes the default routes that it has learned, and ignores later
// advertisements, so that addresses expire. Links that do not accept any are left alone, unless they replace one that did:
// new links forward, so that the kernel ignores advertisements there. system are the external_ids of Open_vSwitch.
func (g *Gateway) keepAdvertisements(ctx context.Context, system map[string]string) error {
	if !slices.Contains(g.Families, topology.IPv6) || !link.HasIPv6() {
		return nil
	}
	links, err := link.Own()
	if err != nil {
		return err
	}
	for _, p := range g.physicalNetworks() {
		bridge, uplink, _, err := g.discover(ctx, p)
		if err != nil && p.second() {
			continue // the other networks need not wait for it
		}
		if err != nil {
			return fmt.Errorf("find the uplink: %w", err)
		}
		links = append(links, bridge, uplink)
	}
	recorded, err := settings.Recorded(system)
	if err != nil {
		return err
	}
	accepted := func(name string) bool {
		return recorded[link.SysctlName(topology.IPv6, name, acceptParameter)] == acceptHost
	}
	for parameter := range recorded {
		if name := path.Base(path.Dir(parameter)); accepted(name) {
			links = append(links, name) // also one that is absent now, or has no address yet
		}
	}
	want := map[string]string{}
	for _, name := range links {
		if name == topology.ManagementPort { // see ensureManagementSettings
			continue
		}
		accepts, err := acceptsAdvertisements(name)
		if !accepts && err == nil && accepted(name) {
			accepts, err = isNewOrAbsent(name)
		}
		if err != nil {
			return err
		}
		if accepts {
			want[link.SysctlName(topology.IPv6, name, acceptParameter)] = acceptAlways
		}
	}
	return g.Settings.Apply(ctx, gateway.Contributor+"-advertisements", want)
}

// isNewOrAbsent reports whether a link, which accepts no router advertisements, does not exist or has the kernel's
// default: nobody has decided that it should not.
func isNewOrAbsent(name string) (bool, error) {
	accept, err := link.Sysctl(topology.IPv6, name, acceptParameter)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return accept == acceptHost, err
}

// acceptsAdvertisements reports whether a link currently accepts router advertisements; a link
// that does not exist does not.
func acceptsAdvertisements(name string) (bool, error) {
	accept, err := link.Sysctl(topology.IPv6, name, acceptParameter)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || accept != acceptHost {
		return accept == acceptAlways, err
	}
	forwarding, err := link.Sysctl(topology.IPv6, name, "forwarding")
	return forwarding == "0", err
}

// withoutAdvertised removes the routes that the kernel has from router advertisements,
// if the uplink accepts them: both the uplink and the bridge get their own routes, which they
// solicit when they come up. A copied route would make the kernel reject the advertisement, including
// its addresses, and would stay when the router is gone.
func withoutAdvertised(uplink string, from host.Attachment) (host.Attachment, error) {
	accepts, err := acceptsAdvertisements(uplink)
	if err != nil || !accepts {
		return from, err
	}
	from.Routes = slices.DeleteFunc(slices.Clone(from.Routes), func(r host.LinkRoute) bool { return r.Protocol == unix.RTPROT_RA })
	return from, nil
}

// withAdvertised adds the routes that the kernel has on the bridge from router advertisements. They do not
// move with the host, but their default gateways are those of the gateway router, too.
func withAdvertised(bridge string, to host.Attachment) (host.Attachment, error) {
	now, err := attachment.Read(bridge)
	if err != nil {
		return to, err
	}
	to.Routes = slices.Clone(to.Routes)
	for _, r := range now.Routes {
		if r.Protocol == unix.RTPROT_RA && !slices.ContainsFunc(to.Routes, r.SameAs) {
			to.Routes = append(to.Routes, r)
		}
	}
	return to, nil
}

// passAdvertisements makes a link accept router advertisements if the link that it replaces
// does.
func passAdvertisements(from, to string) error {
	accepts, err := acceptsAdvertisements(from)
	if err != nil || !accepts {
		return err
	}
	return link.SetLinkSysctl(topology.IPv6, to, acceptParameter, acceptAlways)
}

// solicitRouters makes the kernel solicit routers on a link that accepts router
// advertisements, by restarting IPv6 there. This removes addresses from the link.
func solicitRouters(name string) error {
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
