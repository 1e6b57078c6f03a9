package iptables

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// refusable is a rule that no kernel takes.
const refusable host.Rule = "-j NO-SUCH-TARGET"

// TestRefused: a contributor whose rules the kernel refuses gets the error whenever they are tried, and so does whoever
// asks for the state of all. Others do not, and their rules are written.
func TestRefused(t *testing.T) {
	ns := netnstest.New(t)
	w := newWriter(t, both(0, "nat", "A"))
	chain := nat(topology.IPv4, "A")
	own := func(comment string) []host.Rule {
		return []host.Rule{host.Spec{Comment: comment, Target: host.Return}.Rule()}
	}
	check := func(when string, want ...string) {
		t.Helper()
		var rules []host.Rule
		for _, comment := range want {
			rules = append(rules, own(comment)...)
		}
		if got := rulesIn(ns, chain); !slices.Equal(got, rules) {
			t.Errorf("%s: rules %q, want %q", when, got, rules)
		}
	}
	apply := func(contributor string, rules []host.Rule) error {
		return w.Apply(t.Context(), contributor, host.Rules{chain: rules})
	}
	if err := apply("a", own("former")); err != nil {
		t.Fatal(err)
	}
	for what, pass := range map[string]func() error{
		"Apply":  func() error { return apply("a", append(own("new"), refusable)) },
		"Resync": func() error { return w.Resync(t.Context()) },
		"Sweep":  func() error { return w.Sweep(t.Context()) },
	} {
		if err := apply("a", append(own("new"), refusable)); err == nil {
			t.Fatal("the kernel took it")
		}
		if err := pass(); err == nil {
			t.Errorf("%s: no error", what)
		}
		check(what, "former")
	}
	for _, comment := range []string{"one", "two"} {
		if err := apply("b", own(comment)); err != nil {
			t.Errorf("another one: %v", err)
		}
		check("with another one's", "former", comment)
	}
	if err := apply("c", []host.Rule{refusable}); err == nil {
		t.Error("a second one: no error")
	}
	check("with a second one", "former", "two")
	if err := apply("a", own("new")); err != nil {
		t.Errorf("without the refused rule: %v", err)
	}
	check("without the refused rule", "new", "two")
	for _, contributor := range []string{"a", "c"} {
		if err := apply(contributor, nil); err != nil {
			t.Errorf("%s, without any: %v", contributor, err)
		}
	}
	check("in the end", "two")
	if err := w.Resync(t.Context()); err != nil {
		t.Errorf("in the end: %v", err)
	}
}

// TestRefusedAmongMany: however many contributors one pass is for, in whichever tables, the rules of all are written but for those that
// are refused.
func TestRefusedAmongMany(t *testing.T) {
	ns := netnstest.New(t)
	w := newWriter(t, everywhere()...)
	var want []host.Rule
	for i := range 20 {
		name := fmt.Sprintf("c%02d", i)
		rules := inEvery(name)
		if i%7 == 3 {
			key := nat([]topology.Family{topology.IPv4, topology.IPv6}[i%2], "NAT")
			rules[key] = append(rules[key], refusable)
		}
		if i%7 != 3 || i%2 == 1 { // of the others, IPv4 has such a rule
			want = append(want, rules[nat(topology.IPv4, "NAT")]...)
		}
		w.contribute(name, rules)
	}
	o, err := w.pass(t.Context())
	if err != nil || o.err != nil || len(o.refused) != 3 {
		t.Fatalf("%v; %+v", err, o)
	}
	if got := rulesIn(ns, nat(topology.IPv4, "NAT")); !slices.Equal(got, want) {
		t.Errorf("rules %q\nwant %q", got, want)
	}
	if err := w.Apply(t.Context(), "c00", nil); err != nil {
		t.Errorf("one of the others: %v", err)
	}
	if got := rulesIn(ns, nat(topology.IPv4, "NAT")); !slices.Equal(got, want[1:]) {
		t.Errorf("without one: rules %q\nwant %q", got, want[1:])
	}
}

// TestFailedForAll: what could not be written at all is written as soon as it can be, although nobody wants anything new.
func TestFailedForAll(t *testing.T) {
	ns := netnstest.New(t)
	path := os.Getenv("PATH")
	w := newWriter(t, both(0, "nat", "A"))
	want := host.Rules{nat(topology.IPv4, "A"): {"-j RETURN"}}
	t.Setenv("PATH", t.TempDir())
	if err := w.Apply(t.Context(), "a", want); err == nil {
		t.Fatal("no error without programs")
	}
	t.Setenv("PATH", path)
	if err := w.Apply(t.Context(), "a", want); err != nil {
		t.Fatal(err)
	}
	if got := rulesIn(ns, nat(topology.IPv4, "A")); len(got) != 1 {
		t.Errorf("rules %q", got)
	}
}
