package network

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// ranges is a set of prefixes that do not overlap, sorted by address.
type ranges []netip.Prefix

// find returns the position of p and whether it overlaps a member.
func (r ranges) find(p netip.Prefix) (int, bool) {
	i, found := slices.BinarySearchFunc(r, p.Addr(), func(m netip.Prefix, a netip.Addr) int {
		return m.Addr().Compare(a)
	})
	overlaps := found || i > 0 && r[i-1].Overlaps(p) || i < len(r) && r[i].Overlaps(p)
	return i, overlaps
}

// add inserts p; it does nothing and returns false if p overlaps a member.
func (r *ranges) add(p netip.Prefix) bool {
	i, overlaps := r.find(p)
	if !overlaps {
		*r = slices.Insert(*r, i, p)
	}
	return !overlaps
}

// nthSubnet returns the n-th subnet of length bits of p.
func nthSubnet(p netip.Prefix, bits int, n uint64) netip.Prefix {
	b := p.Masked().Addr().AsSlice()
	for i := bits - 1; i >= p.Bits() && n > 0; i-- {
		b[i/8] |= byte(n&1) << (7 - i%8)
		n >>= 1
	}
	addr, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(addr, bits)
}

// subnetPool allocates the node subnets of one cluster subnet, lowest first.
type subnetPool struct {
	ClusterSubnet
	size uint64 // number of node subnets
	next uint64 // all below are taken
}

func newSubnetPool(s ClusterSubnet) *subnetPool {
	p := &subnetPool{ClusterSubnet: s, size: 1 << min(s.HostPrefixLen-s.CIDR.Bits(), 62)}
	// The first subnet of an IPv6 range has the same address as the range itself, so it is
	// used last: the n-th IPv4 subnet goes with the n+1-th IPv6 subnet.
	if s.CIDR.Addr().Is6() && p.size > 1 {
		p.next = 1
	}
	return p
}

// free returns the lowest subnet not in used. Nothing may be removed from used in the
// lifetime of the pool.
func (p *subnetPool) free(used ranges) (netip.Prefix, bool) {
	for ; p.next < p.size; p.next++ {
		s := nthSubnet(p.CIDR, p.HostPrefixLen, p.next)
		if _, taken := used.find(s); !taken {
			return s, true
		}
	}
	return netip.Prefix{}, false
}

// freeSubnet returns a free subnet from the first pool that has one.
func freeSubnet(pools []*subnetPool, used ranges) (netip.Prefix, bool) {
	for _, p := range pools {
		if s, ok := p.free(used); ok {
			return s, true
		}
	}
	for _, p := range pools {
		s := nthSubnet(p.CIDR, p.HostPrefixLen, 0)
		if _, taken := used.find(s); !taken {
			return s, true
		}
	}
	return netip.Prefix{}, false
}

// joinPool allocates the addresses of one join subnet, lowest first.
type joinPool struct {
	subnet netip.Prefix
	used   map[netip.Addr]bool
	next   uint64 // all host numbers below are taken
}

// firstJoin is the host number of the first gateway router; 1 is the cluster router.
const firstJoin = 2

func newJoinPool(subnet netip.Prefix) *joinPool {
	return &joinPool{subnet: subnet, used: map[netip.Addr]bool{}, next: firstJoin}
}

// usable reports whether a gateway router may have address a: it is neither the subnet
// address, nor that of the cluster router, nor the broadcast address.
func (p *joinPool) usable(a netip.Addr) bool {
	return p.subnet.Contains(a) && p.subnet.Addr().Less(a) && a != topology.NthAddr(p.subnet, 1) &&
		(a.Is6() || p.subnet.Contains(a.Next()))
}

// take reserves a; it returns false if a is not usable or taken.
func (p *joinPool) take(a netip.Addr) bool {
	if !p.usable(a) || p.used[a] {
		return false
	}
	p.used[a] = true
	return true
}

// free returns the lowest address that is not taken.
func (p *joinPool) free() (netip.Prefix, bool) {
	for ; ; p.next++ {
		a := topology.NthAddr(p.subnet, p.next)
		if !a.IsValid() || !p.usable(a) {
			return netip.Prefix{}, false
		}
		if !p.used[a] {
			return netip.PrefixFrom(a, p.subnet.Bits()), true
		}
	}
}
