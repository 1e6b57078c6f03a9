package sb

import (
	"context"
	"fmt"
	"strings"
	"testing"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
)

// TestReplacedRouter: northd, which cannot delete the datapath of a router that was replaced at
// once, goes on as soon as the router's static MAC bindings are deleted, and creates them again. Those
// of other routers stay.
func TestReplacedRouter(t *testing.T) {
	ovn := ovntrace.Start(t)
	// In one transaction, which ovn-nbctl's own commands for ports would refuse.
	add := func(router string) []string {
		return []string{"--", "--id=@port", "create", "Logical_Router_Port", "name=port-" + router, `mac="0a:58:00:00:00:01"`, "networks=192.0.2.1/24",
			"--", "create", "Logical_Router", "name=" + router, "ports=@port"}
	}
	for _, router := range []string{"replaced", "stays"} {
		ovn.NB.Nbctl(append(add(router), "--", "create", "Static_MAC_Binding", "logical_port=port-"+router,
			`ip="192.0.2.7"`, `mac="0a:58:00:00:00:07"`)...)
	}
	ovn.Sync()
	binding := func(router, column string) string {
		return strings.TrimSpace(ovn.Sbctl("--bare", "--columns="+column, "find", "Static_MAC_Binding", "logical_port=port-"+router))
	}
	stays, former := binding("stays", "_uuid"), binding("replaced", "datapath")
	replace := func() {
		ovn.NB.Nbctl(append([]string{"--", "destroy", "Logical_Router", "replaced"}, add("replaced")...)...)
	}
	replace()

	b := NewBindings(nbovsdb.Config{Address: ovn.NB.Socket()}, nbovsdb.Config{Address: ovn.SB.Socket()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	renewed := func(former string) {
		t.Helper()
		eventually.Succeeds(t, "a binding of the new router", func() error {
			if now := binding("replaced", "datapath"); now == "" || now == former {
				return fmt.Errorf("it is that of %q, was %q", now, former)
			}
			return nil
		})
	}
	renewed(former)
	former = binding("replaced", "datapath")
	replace()
	b.Look()
	renewed(former)
	ovn.Sync()
	if now := binding("stays", "_uuid"); now != stays {
		t.Errorf("the binding of the other router is %s, was %s", now, stays)
	}
}
