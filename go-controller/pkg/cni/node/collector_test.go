package node

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/safchain/ethtool"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestRunCollects: a server removes the ports of sandboxes that died while it was not
// running. The link of such a port is gone, also for the server's goroutines outside the
// test's namespace.
func TestRunCollects(t *testing.T) {
	l := newLab(t)
	l.server.Socket = filepath.Join(t.TempDir(), "cni.sock")
	l.vs.Run("ovs-vsctl", "add-port", "br-int", "dead", "--", "set", "interface", "dead", "external_ids:"+cni.IDSandbox+"=sb1",
		"--", "add-port", "br-int", "foreign")
	eventually.True(t, "the ports to be seen", func() bool { // the server checks once a minute
		ports, err := l.db.Ports(t.Context(), "br-int")
		return err == nil && slices.ContainsFunc(ports, func(p ovs.Port) bool { return p.ExternalIDs[cni.IDSandbox] == "sb1" })
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.server.Run(ctx) }()
	eventually.True(t, "the port to go", func() bool { return l.ports() == "foreign" })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestDatapath: packets that a userspace datapath reads from a pod's link are complete and
// hidden from the kernel; with the kernel datapath the link is not changed.
func TestDatapath(t *testing.T) {
	for datapath, raw := range map[string]bool{"netdev": true, "system": false, "": false} {
		t.Run("type "+datapath, func(t *testing.T) {
			l := newLab(t)
			l.vs.Run("ovs-vsctl", "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-datapath-type")
			if datapath != "" {
				l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-datapath-type="+datapath)
			}
			eventually.True(t, "the type to be seen", func() bool {
				ids, err := l.db.System(t.Context())
				return err == nil && ids["ovn-bridge-datapath-type"] == datapath
			})
			l.pod("web", "u1", podNetwork)
			l.sandbox("sb1")
			add := l.request(cni.CommandAdd, "sb1", "web", "u1")
			l.mustHandle(add)
			if muted := strings.Contains(l.ns.Run("nft", "list", "ruleset"), "chain"); muted != raw {
				t.Errorf("the host's end is kept from the kernel: %t", muted)
			}
			err := link.Inside(add.Netns, func() error {
				tool, err := ethtool.NewEthtool()
				if err != nil {
					return err
				}
				defer tool.Close()
				features, err := tool.Features("eth0")
				if offloads := features["tx-checksum-ip-generic"]; err == nil && offloads == raw {
					t.Errorf("the pod leaves checksums to others: %t", offloads)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
