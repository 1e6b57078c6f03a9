package iprule

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
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
