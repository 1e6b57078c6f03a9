package node

import (
	"errors"
	"sync"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
)

// TestDatabaseLostInMidPass replaces the database of Open vSwitch during a pass, and start scripts write the identity into the
// new one: the settings of the lost one come back, and no kernel parameter's earlier value is forgotten.
func TestDatabaseLostInMidPass(t *testing.T) {
	l := newLab(t)
	l.up()
	ids := func() string { return l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids") }
	before := ids()
	lose := sync.OnceFunc(func() {
		l.vs.LoseDatabase()
		l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1", "external_ids:hostname="+nodeName)
	})
	if err := l.pass(l.start(meddling{l.db, lose})); !errors.Is(err, ovs.ErrReplaced) {
		t.Errorf("the pass returns %v", err)
	}
	l.up()
	if got := ids(); got != before {
		t.Errorf("external_ids are\n%s\nwant\n%s", got, before)
	}
}

// TestParametersSinceTheLoss: a feature that has recorded kernel parameters in the new database before the gateway's pass does not
// make the node forget those of the lost one, nor the values from before them.
func TestParametersSinceTheLoss(t *testing.T) {
	l := newLab(t)
	l.up()
	ids := func() string { return l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids") }
	before := ids()
	l.vs.LoseDatabase()
	l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", `external_ids:ovnkube-sysctls="{\"net/ipv4/conf/ovn-k8s-mp0/rp_filter\":\"1\"}"`)
	l.up()
	if got := ids(); got != before {
		t.Errorf("external_ids are\n%s\nwant\n%s", got, before)
	}
}
