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

// TestWithLost: a process that starts on a database that was lost finds the settings that were in it, unless somebody has set them again.
func TestWithLost(t *testing.T) {
	l := newLab(t)
	l.up()
	l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:k8s-api-server=https://192.0.2.1:6443")
	l.up()
	g := l.start(l.db)
	for _, tc := range []struct {
		what string
		have map[string]string
		node string
		want [2]string
	}{
		{"as it was", map[string]string{idEncapIP: "192.0.2.9", idRemote: ""}, nodeName, [2]string{}},
		{"lost", map[string]string{idRemote: ""}, nodeName, [2]string{g.ControllerIDs[idRemote], "https://192.0.2.1:6443"}},
		{"set again", map[string]string{idRemote: "tcp:192.0.2.7:6642"}, nodeName, [2]string{"tcp:192.0.2.7:6642", "https://192.0.2.1:6443"}},
		{"another node's", nil, "n2", [2]string{}},
	} {
		got := WithLost(tc.have, g.StateFile, tc.node)
		if got := [2]string{got[idRemote], got["k8s-api-server"]}; got != tc.want {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}
