package pod

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// firstPod is the host number of the first pod address: 0 is the network, 1
// the router and 2 the management port.
const firstPod = 3

// maxHosts limits the number of assignable addresses of one subnet. A node runs
// some hundred pods; an IPv6 subnet has more addresses than memory has bits.
const maxHosts = 1 << 20

// bitmap is a set of small numbers that grows as needed.
type bitmap []uint64

func (b bitmap) has(n uint64) bool { return n/64 < uint64(len(b)) && b[n/64]>>(n%64)&1 == 1 }

func (b *bitmap) set(n uint64) {
	for uint64(len(*b)) <= n/64 {
		*b = append(*b, 0)
	}
	(*b)[n/64] |= 1 << (n % 64)
}

func (b bitmap) clear(n uint64) {
	if b.has(n) {
		b[n/64] &^= 1 << (n % 64)
	}
}

// word returns the numbers 64*i to 64*i+63 as bits.
func (b bitmap) word(i uint64) uint64 {
	if i < uint64(len(b)) {
		return b[i]
	}
	return 0
}

// firstFree returns the lowest number in [from, to) that is in none of the maps.
func firstFree(from, to uint64, maps ...bitmap) (uint64, bool) {
	for i := from / 64; i*64 < to; i++ {
		var taken uint64
		for _, m := range maps {
			taken |= m.word(i)
		}
		if i == from/64 {
			taken |= 1<<(from%64) - 1
		}
		if taken != ^uint64(0) {
			n := i*64 + uint64(bits.TrailingZeros64(^taken))
			return n, n < to
		}
	}
	return 0, false
}

// pool is the set of pod addresses of one subnet, by host number.
type pool struct {
	subnet netip.Prefix
	end    uint64 // host numbers range from firstPod to end-1
	used   bitmap
}

func newPool(subnet netip.Prefix) *pool {
	p := &pool{subnet: subnet.Masked()}
	hosts := uint64(1) << min(subnet.Addr().BitLen()-subnet.Bits(), 62)
	if subnet.Addr().Is4() {
		hosts-- // broadcast
	}
	p.end = min(hosts, maxHosts)
	return p
}

// number returns the host number of a; false if pods cannot have a.
func (p *pool) number(a netip.Addr) (uint64, bool) {
	if !p.subnet.Contains(a) {
		return 0, false
	}
	addr, base := a.As16(), p.subnet.Addr().As16()
	for i := range 8 { // a number above 64 bits is out of range
		if addr[i] != base[i] {
			return 0, false
		}
	}
	n := binary.BigEndian.Uint64(addr[8:]) - binary.BigEndian.Uint64(base[8:])
	return n, n >= firstPod && n < p.end
}

// prefix returns the address with host number n and the subnet's prefix length.
func (p *pool) prefix(n uint64) netip.Prefix {
	return netip.PrefixFrom(topology.NthAddr(p.subnet, n), p.subnet.Bits())
}

// like returns the host number of one of addrs, from another pool, that is
// free in this pool.
func (p *pool) like(addrs []netip.Prefix) (uint64, bool) {
	for _, a := range addrs {
		number, ok := newPool(a).number(a.Addr())
		if ok && number < p.end && !p.used.has(number) {
			return number, true
		}
	}
	return 0, false
}
