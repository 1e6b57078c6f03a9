package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// The pods of a node that is gone keep their addresses until they are released, also where another node has got the subnet,
// whether that was before or after.
func TestSubnetOfGoneNode(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("gone first ", first), func(t *testing.T) {
			a := NewAllocator()
			small := prefixes("10.0.0.0/29") // four pods
			a.SetNode("n", small, nil)
			allocate(t, a, "a", "[10.0.0.3/29]")
			allocate(t, a, "b", "[10.0.0.4/29]")
			if first {
				a.SetNode("n", nil, nil)
				a.SetNode("m", small, nil)
			} else {
				a.SetNode("m", small, nil)
				a.SetNode("n", nil, nil)
			}
			allocateOn(t, a, "m", "c", "[10.0.0.5/29]")
			allocateOn(t, a, "m", "d", "[10.0.0.6/29]")
			if _, err := a.Allocate(who("e"), "m"); !errors.Is(err, ErrFull) {
				t.Errorf("%v, want %v", err, ErrFull)
			}
			if keys := a.Release(who("a")); !slices.Equal(keys, []string{"ns/e"}) {
				t.Errorf("when an address is free, %v are tried again", keys)
			}
			allocateOn(t, a, "m", "e", "[10.0.0.3/29]")
			// The other pod gets an address where its node is back with another subnet.
			a.SetNode("n", prefixes("10.9.0.0/24"), nil)
			allocateOn(t, a, "n", "b", "[10.9.0.3/24]")
			allocateOn(t, a, "m", "f", "[10.0.0.4/29]")
		})
	}
}

// TestStrand: addresses that a pod had on a node that is not known belong to it wherever they are, unless others have them, until
// it has addresses of a node or is released.
func TestStrand(t *testing.T) {
	small := prefixes("10.0.0.0/29", "fd00::/64")
	former := []netip.Addr{netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("fd00::4")}
	start := func() *Allocator {
		a := NewAllocator()
		a.Strand(who("a"), former)
		a.SetNode("m", small[:1], nil)
		a.SetNode("k", small[1:], nil)
		allocateOn(t, a, "m", "b", "[10.0.0.4/29]")
		allocateOn(t, a, "k", "c", "[fd00::5/64]")
		if a.IsReserved(who("a")) || len(a.Others(Holder{Key: who("a").Key})) != 1 {
			t.Error("the pod counts as one of a node, or is not known")
		}
		return a
	}
	a := start()
	a.Release(who("a"))
	allocateOn(t, a, "m", "d", "[10.0.0.5/29]")
	allocateOn(t, a, "m", "e", "[10.0.0.6/29]")
	allocateOn(t, a, "m", "f", "[10.0.0.3/29]")

	a = start()
	a.SetNode("m", small, []Claim{{Holder: who("a"), Addrs: prefixes("10.0.0.3/29", "fd00::4/64")}})
	allocateOn(t, a, "m", "a", "[10.0.0.3/29 fd00::4/64]")
	if addrs, err := a.Allocate(who("x"), "k"); fmt.Sprint(addrs, err) != "[fd00::6/64] <nil>" {
		t.Errorf("%v, %v", addrs, err)
	}

	a = start()
	allocateOn(t, a, "m", "a", "[10.0.0.3/29]") // without a claim it has only what it occupied there
	a.Strand(who("b"), former)
	allocateOn(t, a, "m", "b", "[10.0.0.4/29]") // it has one already
}
