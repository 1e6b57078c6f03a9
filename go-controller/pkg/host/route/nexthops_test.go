package route

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

func TestNextHops(t *testing.T) {
	ns := netnstest.New(t)
	management(ns)
	if hops, err := NextHops(); err != nil || len(hops) != 0 {
		t.Errorf("without a default route: %v, %v", hops, err)
	}
	ns.Run("ip", "route", "add", "192.0.2.0/24", "via", "172.18.0.9")
	ns.Run("ip", "route", "add", "default", "via", "172.18.0.1")
	ns.Run("ip", "route", "add", "default", "metric", "7", "nexthop", "via", "172.18.0.1", "nexthop", "via", "172.18.0.2")
	ns.Run("ip", "-6", "route", "add", "default", "via", "fd00:10:244:2::9")
	ns.Run("ip", "-6", "route", "add", "default", "via", "fe80::1", "dev", "mp0", "metric", "9")
	hops, err := NextHops()
	slices.SortFunc(hops, netip.Addr.Compare)
	if want := []netip.Addr{ip("172.18.0.1"), ip("172.18.0.2"), ip("fd00:10:244:2::9")}; err != nil || !slices.Equal(hops, want) {
		t.Errorf("next hops are %v, %v, want %v", hops, err, want)
	}
}
