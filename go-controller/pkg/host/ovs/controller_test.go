package ovs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestForgetController: what ovn-controller has written is deleted, and nothing else.
func TestForgetController(t *testing.T) {
	for limit, want := range map[string][]string{"0": {"flow-limit=1000"}, "2": {"flow-limit=1000", "vlan-limit=2"}} {
		t.Run("limit "+limit, func(t *testing.T) {
			o := netnstest.New(t).OVS()
			o.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "other_config:flow-limit=1000", `other_config:ovn-chassis-idx-n1=""`, "other_config:vlan-limit="+limit,
				"--", "--id=@used", "create", "QoS", "type=linux-noop", "--", "--id=@unused", "create", "QoS", "type=linux-noop",
				"--", "--id=@theirs", "create", "QoS", "type=linux-htb",
				"--", "add-br", "theirs", "--", "set", "bridge", "theirs", "datapath_type=netdev", "--", "set", "port", "theirs", "qos=@used")
			db := ovs.New(t.Context(), o.Endpoint())
			for range 2 {
				must(t, db.ForgetController(t.Context()))
				var config []string
				for pair := range strings.SplitSeq(strings.Trim(get(o, "get", "Open_vSwitch", ".", "other_config"), "{}"), ", ") {
					if strings.Contains(pair, "limit") || strings.Contains(pair, "ovn") {
						config = append(config, strings.ReplaceAll(pair, `"`, ""))
					}
				}
				if !slices.Equal(config, want) {
					t.Errorf("other_config is %s, want %s", config, want)
				}
				if got := slices.Sorted(strings.FieldsSeq(get(o, "--bare", "--columns=type", "list", "QoS"))); !slices.Equal(got, []string{"linux-htb", "linux-noop"}) {
					t.Errorf("left of QoS: %s", got)
				}
			}
		})
	}
}
