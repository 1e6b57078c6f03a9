package fuzzed

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// Translation is a NAT row: its router, and the external and logical address.
type Translation struct{ Router, External, Logical string }

// Rows checks invariants of the rows of any plan: OVN can parse each of them, each has a unique id, and no two
// translate the same address. Call Add for the rows of all owners of a plan.
type Rows struct {
	t    testing.TB
	seen map[string]bool
	// logical are the owners of translations of an address on a router.
	logical map[[2]string]nb.Owner
}

// NewRows returns an empty Rows.
func NewRows(t testing.TB) *Rows {
	return &Rows{t: t, seen: map[string]bool{}, logical: map[[2]string]nb.Owner{}}
}

// Add checks the rows of an owner.
func (r *Rows) Add(o nb.Owner, rows []nb.Row) {
	r.t.Helper()
	for _, row := range rows {
		id := fmt.Sprintf("%v %T %s", o, row.Model, row.ID)
		if row.ID == "" || r.seen[id] {
			r.t.Errorf("row %q is there twice, or has no id", id)
		}
		r.seen[id] = true
		if why := invalid(row); why != "" {
			r.t.Errorf("%s: %s", id, why)
		}
		if nat, ok := row.Model.(*nbdb.NAT); ok && nat.Type == nbdb.NATTypeSNAT {
			at := [2]string{row.Parent.Name, nat.LogicalIP}
			if other, taken := r.logical[at]; taken && (nat.LogicalPort == nil) {
				r.t.Errorf("%s: %s on %s is translated by %v already", id, at[1], at[0], other)
			}
			r.logical[at] = o
		}
	}
}

// invalid returns why OVN could not parse a row; empty if it can.
func invalid(row nb.Row) string {
	switch m := row.Model.(type) {
	case *nbdb.LogicalRouterPolicy:
		for _, hop := range m.Nexthops {
			if !isAddr(hop) {
				return fmt.Sprintf("next hop %q", hop)
			}
		}
		return badMatch(m.Match)
	case *nbdb.NAT:
		if !isAddr(m.ExternalIP) || !isAddr(m.LogicalIP) && !isPrefix(m.LogicalIP) {
			return fmt.Sprintf("translates %q to %q", m.LogicalIP, m.ExternalIP)
		}
		if strings.Contains(m.ExternalIP, ":") != strings.Contains(m.LogicalIP, ":") {
			return fmt.Sprintf("translates %q to %q, of another family", m.LogicalIP, m.ExternalIP)
		}
	case *nbdb.LogicalRouterStaticRoute:
		if !isPrefix(m.IPPrefix) && !isAddr(m.IPPrefix) || !isAddr(m.Nexthop) && m.Nexthop != "discard" {
			return fmt.Sprintf("route to %q by %q", m.IPPrefix, m.Nexthop)
		}
	case *nbdb.LogicalSwitchPort:
		return badPort(m)
	case *nbdb.LogicalRouterPort:
		if mac, err := net.ParseMAC(m.MAC); err != nil || len(mac) != 6 {
			return fmt.Sprintf("MAC address %q", m.MAC)
		}
		if len(m.Networks) == 0 || slices.ContainsFunc(m.Networks, func(n string) bool { return !isPrefix(n) }) {
			return fmt.Sprintf("networks %q", m.Networks)
		}
	case *nbdb.AddressSet:
		for _, a := range m.Addresses {
			if !isAddr(a) && !isPrefix(a) {
				return fmt.Sprintf("address %q", a)
			}
		}
	case *nbdb.BFD:
		if !isAddr(m.DstIP) {
			return fmt.Sprintf("BFD with %q", m.DstIP)
		}
	case *nbdb.LoadBalancer:
		return badVIPs(m.Vips)
	}
	return ""
}

func badPort(m *nbdb.LogicalSwitchPort) string {
	if m.Type == "router" || m.Type == "localnet" {
		return ""
	}
	for _, text := range slices.Concat(m.Addresses, m.PortSecurity) {
		words := strings.Fields(text)
		if mac, err := net.ParseMAC(first(words)); err != nil || len(mac) != 6 {
			return fmt.Sprintf("addresses %q", text)
		}
		for _, w := range words[1:] {
			if !isAddr(w) {
				return fmt.Sprintf("addresses %q", text)
			}
		}
	}
	return ""
}

// badVIPs checks the addresses of a load balancer that does not use templates.
func badVIPs(vips map[string]string) string {
	for vip, backends := range vips {
		if !strings.HasPrefix(vip, "^") && !isEndpoint(vip) {
			return fmt.Sprintf("VIP %q", vip)
		}
		for _, b := range strings.Split(backends, ",") {
			if b != "" && !strings.HasPrefix(b, "^") && !isEndpoint(b) {
				return fmt.Sprintf("backend %q of %q", b, vip)
			}
		}
	}
	return ""
}

// compared finds the addresses that a match compares with.
var compared = regexp.MustCompile(`ip[46]\.(?:src|dst) [!=]= (\{[^}]*\}|[^ )]+)`)

// badMatch finds what none of our matches contains: unbalanced quotes, line breaks, and words that look like an
// address but are not.
func badMatch(match string) string {
	if match == "" || strings.Count(match, `"`)%2 != 0 || strings.Count(match, "(") != strings.Count(match, ")") || strings.ContainsAny(match, "\r\n") {
		return fmt.Sprintf("match %q", match)
	}
	for _, found := range compared.FindAllStringSubmatch(match, -1) {
		for _, value := range strings.Split(strings.Trim(found[1], "{} "), ",") {
			if value = strings.TrimSpace(value); !strings.HasPrefix(value, "$") && !isAddr(value) && !isPrefix(value) {
				return fmt.Sprintf("match %q: %q", match, value)
			}
		}
	}
	return ""
}

func first(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

func isAddr(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Zone() == "" && !a.Is4In6()
}

func isPrefix(text string) bool {
	p, err := netip.ParsePrefix(text)
	return err == nil && !p.Addr().Is4In6()
}

func isEndpoint(text string) bool {
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a.Addr().Zone() == "" && !a.Addr().Is4In6()
	}
	return isAddr(strings.Trim(text, "[]"))
}
