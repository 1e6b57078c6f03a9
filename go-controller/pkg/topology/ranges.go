package topology

import "net/netip"

// LinkLocal are the link-local ranges. Traffic from pods to them, for example to a cloud's
// metadata service, is for hosts on a link of the pod's own node.
var LinkLocal = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}

// Everywhere returns the prefix of all addresses of a family.
func Everywhere(f Family) netip.Prefix {
	if f == IPv4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// Halves returns the two halves of a range of more than one address.
func Halves(p netip.Prefix) [2]netip.Prefix {
	low := p.Masked().Addr().AsSlice()
	high := p.Masked().Addr().AsSlice()
	high[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	a, _ := netip.AddrFromSlice(low)
	b, _ := netip.AddrFromSlice(high)
	return [2]netip.Prefix{netip.PrefixFrom(a, p.Bits()+1), netip.PrefixFrom(b, p.Bits()+1)}
}
