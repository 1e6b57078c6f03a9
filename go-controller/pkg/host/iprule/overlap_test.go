package iprule

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestAnotherTable: a rule that refers to another table now is added before the former one is deleted. In
// between, packets would take the main table, and leave with another address.
func TestAnotherTable(t *testing.T) {
	netnstest.New(t)
	rules := func(table int) map[host.IPRule]struct{} {
		out := map[host.IPRule]struct{}{}
		for _, src := range []string{"10.244.1.3/32", "fd00:10:244::3/128"} {
			p := netip.MustParsePrefix(src)
			out[host.IPRule{Family: topology.FamilyOf(p.Addr()), Priority: topology.RuleEgressIP, Src: p, Table: table}] = struct{}{}
		}
		return out
	}
	set := NewSet()
	if err := set.Apply(t.Context(), "a", rules(1111)); err != nil {
		t.Fatal(err)
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := socket.SetReceiveTimeout(&unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	if err := set.Apply(t.Context(), "a", rules(1000)); err != nil {
		t.Fatal(err)
	}
	var got []uint16
	for len(got) < 4 {
		messages, _, err := socket.Receive()
		if err != nil {
			t.Fatalf("%v after %v", err, got)
		}
		for _, m := range messages {
			got = append(got, m.Header.Type)
		}
	}
	if want := []uint16{syscall.RTM_NEWRULE, syscall.RTM_NEWRULE, syscall.RTM_DELRULE, syscall.RTM_DELRULE}; !slices.Equal(got, want) {
		t.Errorf("the kernel reports %v, want %v", got, want)
	}
}

// TestLeftForAnotherTable: a rule that an earlier run left with another table goes as soon as the one that is wanted
// now is there, since the kernel would use the older one. Its table only drops if its link has been removed, and the
// number of a link changes when it is created again. Other rules of the earlier run stay until Sweep.
func TestLeftForAnotherTable(t *testing.T) {
	ns := netnstest.New(t)
	left := [][]string{{"-4", "10.244.1.3"}, {"-4", "10.244.1.9"}, {"-6", "fd00:10:244::3"}}
	for _, l := range left {
		ns.Run("ip", l[0], "rule", "add", "from", l[1], "table", "1003", "priority", "6000", "protocol", "79")
	}
	want := map[host.IPRule]struct{}{}
	for _, src := range []string{"10.244.1.3/32", "fd00:10:244::3/128"} {
		p := netip.MustParsePrefix(src)
		want[host.IPRule{Family: topology.FamilyOf(p.Addr()), Priority: topology.RuleEgressIP, Src: p, Table: 1007}] = struct{}{}
	}
	set := NewSet()
	if err := set.Apply(t.Context(), "a", want); err != nil {
		t.Fatal(err)
	}
	have, err := Kernel{}.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const golden = `6000:	from 10.244.1.3 lookup 1007
6000:	from 10.244.1.9 lookup 1003
6000:	from fd00:10:244::3 lookup 1007
`
	if got := hostfake.DumpIPRules(have); got != golden {
		t.Errorf("before Sweep:\n%s\nwant:\n%s", got, golden)
	}
}
