package pod

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

func prefixes(all ...string) (out []netip.Prefix) {
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

var dual = prefixes("10.244.1.0/24", "fd00:10:244:2::/64")

func who(name string) Holder { return Holder{Key: "ns/" + name, UID: "uid-" + name} }

func allocate(t *testing.T, a *Allocator, name, want string) {
	t.Helper()
	allocateOn(t, a, "n", name, want)
}

func allocateOn(t *testing.T, a *Allocator, node, name, want string) {
	t.Helper()
	addrs, err := a.Allocate(who(name), node)
	if got := fmt.Sprint(addrs, err); got != want+" <nil>" {
		t.Errorf("%s is given %s, want %s", name, got, want)
	}
}

func TestFirstPods(t *testing.T) {
	for _, tt := range []struct {
		subnets       []netip.Prefix
		first, second string
	}{
		{dual, "[10.244.1.3/24 fd00:10:244:2::3/64]", "[10.244.1.4/24 fd00:10:244:2::4/64]"},
		{dual[:1], "[10.244.1.3/24]", "[10.244.1.4/24]"},
		{dual[1:], "[fd00:10:244:2::3/64]", "[fd00:10:244:2::4/64]"},
		{prefixes("10.244.2.128/25", "fd00:0:0:8000::/50"), "[10.244.2.131/25 fd00:0:0:8000::3/50]", "[10.244.2.132/25 fd00:0:0:8000::4/50]"},
	} {
		a := NewAllocator()
		a.SetNode("n", tt.subnets, nil)
		allocate(t, a, "a", tt.first)
		allocate(t, a, "b", tt.second)
		allocate(t, a, "a", tt.first) // asking again changes nothing
	}
}

func TestHostNumbersDifferWhereTheyMust(t *testing.T) {
	a := NewAllocator()
	a.SetNode("n", prefixes("10.0.0.0/29", "fd00::/64"), nil)
	for name, addr := range map[string]string{"x": "fd00::3/64", "y": "fd00::4/64", "z": "fd00::5/64", "w": "fd00::6/64"} {
		if err := a.Reserve(who(name), "n", prefixes(addr)); err != nil {
			t.Fatal(err)
		}
	}
	allocate(t, a, "a", "[10.0.0.3/29 fd00::7/64]")
	allocate(t, a, "b", "[10.0.0.4/29 fd00::8/64]")
}

func TestAddressesAreNotReusedAtOnce(t *testing.T) {
	a := NewAllocator()
	a.SetNode("n", prefixes("10.0.0.0/28"), nil)
	for i := 3; i <= 14; i++ {
		allocate(t, a, "p", fmt.Sprintf("[10.0.0.%d/28]", i))
		a.Release(who("p"))
	}
	allocate(t, a, "p", "[10.0.0.3/28]")
}

func TestFullSubnet(t *testing.T) {
	a := NewAllocator()
	a.SetNode("n", prefixes("10.0.0.0/29", "fd00::/64"), nil)
	for i := 3; i <= 6; i++ {
		allocate(t, a, fmt.Sprint(i), fmt.Sprintf("[10.0.0.%d/29 fd00::%d/64]", i, i))
	}
	for range 2 {
		if _, err := a.Allocate(who("late"), "n"); !errors.Is(err, ErrFull) {
			t.Fatalf("a full subnet gives %v", err)
		}
	}
	if keys := a.Release(who("4")); !slices.Equal(keys, []string{"ns/late"}) {
		t.Errorf("a release wakes %v", keys)
	}
	if keys := a.Release(who("5")); len(keys) > 0 {
		t.Errorf("the next release wakes %v again", keys)
	}
	// The host number is free in both families, after the last one assigned.
	allocate(t, a, "late", "[10.0.0.4/29 fd00::4/64]")
	allocate(t, a, "later", "[10.0.0.5/29 fd00::5/64]")
	if _, err := a.Allocate(who("latest"), "n"); !errors.Is(err, ErrFull) {
		t.Fatalf("a full subnet gives %v", err)
	}
	if keys := a.SetNode("n", prefixes("10.0.0.0/28", "fd00::/64"), nil); !slices.Equal(keys, []string{"ns/latest"}) {
		t.Errorf("a larger subnet wakes %v", keys)
	}
}

func TestClaims(t *testing.T) {
	at := func(m int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(m) * time.Minute) }
	claim := func(name string, running bool, age int, addrs ...string) Claim {
		return Claim{Holder: who(name), Addrs: prefixes(addrs...), Running: running, Created: at(age)}
	}
	a := NewAllocator()
	a.SetNode("n", dual, []Claim{
		claim("young", false, 9, "10.244.1.3/24", "fd00:10:244:2::3/64"),
		claim("old", false, 1, "10.244.1.3/24", "fd00:10:244:2::3/64"),
		claim("running", true, 5, "10.244.1.5/24", "fd00:10:244:2::5/64"),
		claim("waiting", false, 2, "10.244.1.5/24", "fd00:10:244:2::9/64"),
		claim("foreign", true, 0, "10.244.9.5/24"),
		claim("gateway", true, 0, "10.244.1.1/24"),
	})
	for name, want := range map[string]bool{
		"young": false, "old": true, "running": true, "waiting": false, "foreign": false, "gateway": false,
	} {
		if a.IsReserved(who(name)) != want {
			t.Errorf("%s holds its claim: %v, want %v", name, !want, want)
		}
	}
	allocate(t, a, "new", "[10.244.1.6/24 fd00:10:244:2::6/64]") // after the last one claimed

	for _, tt := range []struct {
		name  string
		addrs []netip.Prefix
		want  error
	}{
		{"young", prefixes("10.244.1.3/24"), ErrTaken},
		{"old", prefixes("10.244.1.3/24", "fd00:10:244:2::3/64"), nil},
		{"a", prefixes("10.244.1.2/24"), ErrOutside},
		{"a", prefixes("10.244.1.255/24"), ErrOutside},
		{"a", prefixes("10.244.1.7/16"), ErrOutside},
		{"a", prefixes("10.244.1.7/24", "fd00:10:244:2:1::3/64"), ErrOutside},
		{"a", nil, ErrOutside},
		{"a", prefixes("10.244.1.7/24", "10.244.1.8/24"), ErrTwice},
		{"a", prefixes("10.244.1.7/24", "10.244.1.7/24"), ErrTwice},
		{"a", prefixes("10.244.1.7/24"), nil},
		{"a", prefixes("10.244.1.8/24"), ErrHeld},
		{"a", prefixes("10.244.1.7/24"), nil},
	} {
		if err := a.Reserve(who(tt.name), "n", tt.addrs); !errors.Is(err, tt.want) {
			t.Errorf("%s claims %v: %v, want %v", tt.name, tt.addrs, err, tt.want)
		}
	}
	allocate(t, a, "a", "[10.244.1.7/24 fd00:10:244:2::7/64]") // the one it has, and the missing one
}

func TestMACs(t *testing.T) {
	a := NewAllocator()
	a.SetNode("n", dual, nil)
	allocate(t, a, "a", "[10.244.1.3/24 fd00:10:244:2::3/64]")
	if err := a.KeepMAC(who("a"), "0a:58:be:ef:00:01"); err == nil {
		t.Error("a pod with an IPv4 address keeps another MAC address")
	}
	a.SetNode("m", dual[1:], nil)
	for _, name := range []string{"b", "c"} {
		if _, err := a.Allocate(who(name), "m"); err != nil { // ::3 and ::4
			t.Fatal(err)
		}
	}
	for mac, ok := range map[string]bool{
		"0a:58:00:00:00:01": false, "0a:58:00:00:00:02": false, "0a:58:00:00:00:04": false,
		"02:58:be:ef:00:01": false, "01:58:be:ef:00:01": false, "": false, "x": false,
		"0a:58:be:ef:00:01": true,
	} {
		if err := a.KeepMAC(who("b"), mac); (err == nil) != ok {
			t.Errorf("%q: %v", mac, err)
		}
	}
	if err := a.KeepMAC(who("c"), "0A:58:BE:EF:00:01"); !errors.Is(err, ErrTaken) {
		t.Errorf("two pods keep one MAC address: %v", err)
	}
	a.Release(who("b"))
	if err := a.KeepMAC(who("c"), "0a:58:00:00:00:05"); err != nil || a.MAC(who("c")) != "0a:58:00:00:00:05" {
		t.Errorf("%v, %s", err, a.MAC(who("c")))
	}
	if addrs, err := a.Allocate(who("d"), "m"); fmt.Sprint(addrs, err) != "[fd00:10:244:2::6/64] <nil>" {
		t.Errorf("the address whose MAC address is kept by another is given: %v, %v", addrs, err)
	}
}

// Pods keep their addresses while their node temporarily has no subnets.
func TestNodeWithoutSubnetsForAWhile(t *testing.T) {
	a := NewAllocator()
	a.SetNode("n", dual, nil)
	allocate(t, a, "a", "[10.244.1.3/24 fd00:10:244:2::3/64]")
	a.SetNode("n", nil, nil)
	if _, err := a.Allocate(who("b"), "n"); err == nil {
		t.Error("a node without subnets gives addresses")
	}
	a.SetNode("n", dual, nil)
	allocate(t, a, "b", "[10.244.1.4/24 fd00:10:244:2::4/64]")
	allocate(t, a, "a", "[10.244.1.3/24 fd00:10:244:2::3/64]")
	a.SetNode("n", prefixes("10.9.0.0/24"), nil)
	allocate(t, a, "a", "[10.9.0.3/24]")
}

func TestIncarnations(t *testing.T) {
	a := NewAllocator()
	a.SetNode("n", dual, nil)
	old, now := Holder{"ns/db-0", "1"}, Holder{"ns/db-0", "2"}
	before, _ := a.Allocate(old, "n")
	after, _ := a.Allocate(now, "n")
	if slices.Equal(before, after) {
		t.Errorf("two incarnations share %v", before)
	}
	if got := a.Others(now); !slices.Equal(got, []Holder{old}) {
		t.Errorf("others: %v", got)
	}
	a.Release(old)
	if got := a.Others(now); len(got) > 0 {
		t.Errorf("others after the release: %v", got)
	}
	if got := a.Others(Holder{Key: "ns/db-0"}); !slices.Equal(got, []Holder{now}) {
		t.Errorf("all: %v", got)
	}
}

// Whatever happens, in whatever order: no address has two holders, a full
// subnet is really full, and releasing everything leaves nothing.
func TestAllocatorProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	a := NewAllocator()
	subnets := prefixes("10.0.0.0/26", "fd00::/64")
	a.SetNode("n", subnets, nil)
	have := map[Holder][]netip.Prefix{}
	for step := range 20000 {
		h := who(fmt.Sprint(rng.IntN(80)))
		switch rng.IntN(4) {
		case 0:
			a.Release(h)
			delete(have, h)
		case 1:
			addrs := prefixes(fmt.Sprintf("10.0.0.%d/26", rng.IntN(64)), fmt.Sprintf("fd00::%x/64", rng.IntN(64)))
			if a.Reserve(h, "n", addrs) == nil {
				have[h] = addrs
			}
		default:
			addrs, err := a.Allocate(h, "n")
			if err == nil {
				have[h] = addrs
			} else if len(have) < 60 {
				t.Fatalf("step %d: %v with %d holders", step, err, len(have))
			}
		}
		owner := map[netip.Addr]Holder{}
		for h, addrs := range have {
			for _, p := range addrs {
				if other, ok := owner[p.Addr()]; ok {
					t.Fatalf("step %d: %s has two holders, %v and %v", step, p, h, other)
				}
				owner[p.Addr()] = h
			}
		}
	}
	for h := range have {
		a.Release(h)
	}
	if n := a.nodes["n"]; len(n.holders)+len(a.reserved)+len(a.byKey) > 0 || slices.ContainsFunc(n.pools[0].used, func(w uint64) bool { return w != 0 }) {
		t.Errorf("left over: %v, %v, %v", n.holders, a.reserved, a.byKey)
	}
}

func TestAllocatorConcurrency(t *testing.T) {
	a := NewAllocator()
	a.SetNode("n", dual, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	owner := map[netip.Addr]string{}
	for i := range 50 {
		wg.Go(func() {
			name := fmt.Sprint(i)
			addrs, err := a.Allocate(who(name), "n")
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range addrs {
				if other, ok := owner[p.Addr()]; ok {
					t.Errorf("%s and %s have %s", name, other, p)
				}
				owner[p.Addr()] = name
			}
		})
	}
	wg.Wait()
}

// The cost of one allocation does not grow with the pods of other nodes, and
// hardly with those of the same node.
func BenchmarkAllocate(b *testing.B) {
	for _, pods := range []int{10, 10000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			a := NewAllocator()
			a.SetNode("n", prefixes("10.0.0.0/16", "fd00::/64"), nil)
			for i := range pods {
				if _, err := a.Allocate(who(fmt.Sprint("other", i)), "n"); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := a.Allocate(who("p"), "n"); err != nil {
					b.Fatal(err)
				}
				a.Release(who("p"))
			}
		})
	}
}
