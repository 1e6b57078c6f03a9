package ovsdb_test

import (
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
)

// TestRestartBFD: ovn-northd passes the request on to the chassis, and takes it back for a session that routes refer to.
func TestRestartBFD(t *testing.T) {
	ovn := ovntrace.Start(t)
	ovn.Chassis("c1", "10.0.0.1")
	ovn.NB.Nbctl("lr-add", "gr", "--", "set", "Logical_Router", "gr", "options:chassis=c1",
		"--", "lrp-add", "gr", "port", "0a:00:00:00:00:01", "172.18.0.3/16",
		"--", "--id=@b", "create", "BFD", "logical_port=port", "dst_ip=172.18.0.51",
		"--", "--id=@r", "create", "Logical_Router_Static_Route", "ip_prefix=10.244.0.4/32", "nexthop=172.18.0.51", "policy=src-ip", "bfd=@b",
		"--", "add", "Logical_Router", "gr", "static_routes", "@r")
	ovn.Sync()
	status := func() string {
		return strings.TrimSpace(ovn.NB.Nbctl("--bare", "--columns=status", "list", "BFD")) + " " +
			strings.TrimSpace(ovn.Sbctl("--bare", "--columns=status", "list", "BFD"))
	}
	says := func(want string) {
		t.Helper()
		eventually.True(t, "the session to be "+want, func() bool { return status() == want+" "+want }, eventually.Dump(status))
	}
	says("down")
	w := connect(t, ovsdb.Config{Address: ovn.NB.Socket()})
	restart := func() (recorded int) {
		t.Helper()
		before := ovn.SB.RecordsOf("BFD")
		if err := w.RestartBFD(t.Context(), "port", "172.18.0.51"); err != nil {
			t.Fatal(err)
		}
		ovn.Sync()
		return ovn.SB.RecordsOf("BFD") - before
	}
	if n := restart(); n == 0 {
		t.Error("the southbound database did not see the request")
	}
	says("down")
	ovn.Sbctl("set", "BFD", ".", "status=up")
	says("up")
	if n := restart(); n != 0 {
		t.Errorf("a session that is up was restarted: %d changes", n)
	}
	says("up")
}
