package snapshot

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
)

// Lookup resolves a host name, as net.Resolver.LookupNetIP does.
type Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// APIServersAt returns where a server is, given as for client-go: a URL, or a host with or without a port. A host name
// is resolved by lookup, if that is not nil.
func APIServersAt(ctx context.Context, server string, lookup Lookup) ([]netip.AddrPort, error) {
	if server == "" {
		return nil, nil
	}
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("parse the URL of the API server: %w", err)
	}
	port := uint64(443)
	if u.Scheme == "http" {
		port = 80
	}
	if text := u.Port(); text != "" {
		if port, err = strconv.ParseUint(text, 10, 16); err != nil {
			return nil, fmt.Errorf("parse the port of the API server: %w", err)
		}
	}
	addr, err := netip.ParseAddr(u.Hostname())
	addrs := []netip.Addr{addr}
	if err != nil {
		if lookup == nil {
			return nil, nil
		}
		if addrs, err = lookup(ctx, "ip", u.Hostname()); err != nil {
			return nil, fmt.Errorf("resolve the host name of the API server: %w", err)
		}
	}
	var at []netip.AddrPort
	for _, a := range addrs {
		at = append(at, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return at, nil
}

// outside returns which of the configured servers are on hosts of their own: processes may also be configured to use a
// proxy on their own host, or the Service of the API servers.
func outside(servers []netip.AddrPort, ranges reserved.Ranges) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(servers), func(s netip.AddrPort) bool {
		return reserved.NoHost(s.Addr()) != "" || ranges.Refuse(s.Addr()) != (reserved.Refusal{})
	})
}
