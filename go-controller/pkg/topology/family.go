package topology

import (
	"fmt"
	"net/netip"
)

// Family is an IP address family. Code that differs only in the family takes it as an
// argument instead of being written twice.
type Family uint8

// The two families. Their values are the IP version numbers.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists both families in the order rows and rules are written.
var Families = []Family{IPv4, IPv6}

// FamilyOf returns the family of addr. An IPv4-mapped IPv6 address is IPv6: addresses are
// unmapped when they are read.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

// String returns "IPv4" or "IPv6".
func (f Family) String() string {
	return fmt.Sprintf("IPv%d", uint8(f))
}

// Match returns the protocol prefix of OVN match expressions: "ip4" or "ip6".
func (f Family) Match() string {
	return fmt.Sprintf("ip%d", uint8(f))
}

// Bits returns the length of an address in bits: 32 or 128.
func (f Family) Bits() int {
	if f == IPv4 {
		return 32
	}
	return 128
}

// AddrOf returns the first address of family f in addrs.
func AddrOf(f Family, addrs []netip.Addr) (netip.Addr, bool) {
	for _, a := range addrs {
		if a.IsValid() && FamilyOf(a) == f {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// PrefixOf returns the first prefix of family f in prefixes.
func PrefixOf(f Family, prefixes []netip.Prefix) (netip.Prefix, bool) {
	for _, p := range prefixes {
		if p.IsValid() && FamilyOf(p.Addr()) == f {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// HostPrefix returns addr as a prefix of full length (/32 or /128).
func HostPrefix(addr netip.Addr) netip.Prefix {
	return netip.PrefixFrom(addr, addr.BitLen())
}

// IsOfAll reports whether an address of a network cannot belong to a host: it is the network
// address, which in IPv6 is the anycast address of all routers, or the IPv4 broadcast address.
func IsOfAll(network netip.Prefix, a netip.Addr) bool {
	if !network.Contains(a) || network.Bits() >= a.BitLen()-1 {
		return false
	}
	return a == network.Masked().Addr() || a.Is4() && a == last(network)
}

// last returns the highest address of an IPv4 network.
func last(network netip.Prefix) netip.Addr {
	b := network.Addr().As4()
	for i := network.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// NthAddr returns the address that is n above the network address of p, e.g. 1 for the
// router of a node subnet and 2 for its management port. It returns the zero Addr if that
// address is not in p.
func NthAddr(p netip.Prefix, n uint64) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := len(b) - 1; i >= 0 && n > 0; i-- {
		n += uint64(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	addr, _ := netip.AddrFromSlice(b)
	if n > 0 || !p.Contains(addr) {
		return netip.Addr{}
	}
	return addr
}

// MACOf returns the MAC address that is derived from an address: 0a:58 and the four bytes
// of an IPv4 address in hex; for IPv6, 0a:58 and the last four bytes of the address. For
// the zero Addr it returns 0a:58:00:00:00:00.
func MACOf(addr netip.Addr) string {
	b := addr.As16()
	return fmt.Sprintf("0a:58:%02x:%02x:%02x:%02x", b[12], b[13], b[14], b[15])
}

// IsUnicast reports whether addr can be the address of a single pod, node or router: it is
// a global unicast address without zone, and not an IPv4-mapped IPv6 address.
func IsUnicast(addr netip.Addr) bool {
	return addr.IsGlobalUnicast() && !addr.Is4In6() && addr.Zone() == ""
}

// ForgottenMAC is the source of frames by which a bridge tells the host about the end of a
// connection that the node has forgotten. It corresponds to 255.255.255.255, which no host has;
// the one of zeros also corresponds to IPv6 network addresses.
const ForgottenMAC = "0a:58:ff:ff:ff:ff"
