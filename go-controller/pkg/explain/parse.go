package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// ParseDestination parses ADDRESS or ADDRESS:PORT; an empty text is the zero AddrPort.
func ParseDestination(text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, nil
	}
	to, err := netip.ParseAddrPort(text)
	if err != nil {
		var a netip.Addr
		if a, err = netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
			to = netip.AddrPortFrom(a, 0)
		}
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if err != nil || !IsDestination(to.Addr()) {
		return to, errors.New("no destination; allowed: ADDRESS or ADDRESS:PORT, as 192.0.2.1:443 or [2001:db8::1]:443")
	}
	return to, nil
}

// IsDestination reports whether a pod can send to an address, including link-local ones: a
// cloud's metadata address is one.
func IsDestination(a netip.Addr) bool {
	return topology.IsUnicast(a) || a.IsLinkLocalUnicast() && !a.Is4In6() && a.Zone() == ""
}

// ParseAddress parses an address.
func ParseAddress(text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil || address.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q: no address; allowed: ADDRESS, as 192.0.2.1 or 2001:db8::1", text)
	}
	return address.Unmap(), nil
}
