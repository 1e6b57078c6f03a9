package pod

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A pod keeps its MAC address when its node gets a subnet of the other family, or none for a while: that of a
// running pod's interface does not change.
func TestMACInOtherSubnets(t *testing.T) {
	a := NewAllocator()
	mac := func(name, want string) {
		t.Helper()
		if got := a.MAC(who(name)); got != want {
			t.Errorf("%s keeps %q, want %q", name, got, want)
		}
	}
	a.SetNode("n", dual[1:], nil)
	for _, name := range []string{"a", "b"} {
		if _, err := a.Allocate(who(name), "n"); err != nil { // ::3 and ::4
			t.Fatal(err)
		}
	}
	if err := a.KeepMAC(who("b"), "0a:58:be:ef:00:01"); err != nil {
		t.Fatal(err)
	}
	a.SetNode("n", nil, nil)
	a.SetNode("n", dual[1:], nil)
	mac("b", "0a:58:be:ef:00:01")
	a.SetNode("n", dual, nil)
	allocate(t, a, "a", "[10.244.1.3/24 fd00:10:244:2::3/64]")
	mac("a", "0a:58:00:00:00:03")
	allocate(t, a, "a", "[10.244.1.3/24 fd00:10:244:2::3/64]")
	mac("a", "0a:58:00:00:00:03")
	allocate(t, a, "c", "[10.244.1.5/24 fd00:10:244:2::5/64]")
	mac("c", "")

	// The IPv4 address that corresponds to such a MAC address is not given to others, and a MAC address that another
	// pod may have is not kept.
	a = NewAllocator()
	subnets := prefixes("10.244.1.0/24", "fd00::af4:0/112")
	a.SetNode("n", subnets[1:], nil)
	for name, addr := range map[string]string{"a": "fd00::af4:105/112", "b": "fd00::af4:103/112"} {
		if err := a.Reserve(who(name), "n", prefixes(addr)); err != nil {
			t.Fatal(err)
		}
	}
	a.SetNode("n", subnets, nil)
	allocate(t, a, "a", "[10.244.1.3/24 fd00::af4:105/112]")
	mac("a", "0a:58:0a:f4:01:05")
	allocate(t, a, "b", "[10.244.1.4/24 fd00::af4:103/112]")
	mac("b", "")
	allocate(t, a, "c", "[10.244.1.6/24 fd00::af4:6/112]")
}

// A pod keeps the address that it has if its node has no address of another family left.
func TestFullSecondFamily(t *testing.T) {
	a := NewAllocator()
	a.SetNode("n", prefixes("fd00::/64"), nil)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if _, err := a.Allocate(who(name), "n"); err != nil {
			t.Fatal(err)
		}
	}
	a.SetNode("n", prefixes("10.0.0.0/29", "fd00::/64"), nil)
	for name, want := range map[string]string{"a": "3", "b": "4", "c": "5", "d": "6"} {
		allocate(t, a, name, "[10.0.0."+want+"/29 fd00::"+want+"/64]")
	}
	if addrs, err := a.Allocate(who("e"), "n"); !errors.Is(err, ErrFull) || fmt.Sprint(addrs) != "[fd00::7/64]" {
		t.Errorf("the last one has %v, %v", addrs, err)
	}
	if keys := a.Release(who("a")); !slices.Equal(keys, []string{"ns/e"}) {
		t.Errorf("when an address is free, %v are tried again", keys)
	}
	allocate(t, a, "e", "[10.0.0.3/29 fd00::7/64]")
}
