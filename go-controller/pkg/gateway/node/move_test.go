package node

import (
	"context"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// attachment prints the addresses and routes of an interface, like ip.
func (l *lab) attachment(dev string) string {
	l.t.Helper()
	var out strings.Builder
	for _, args := range [][]string{
		{"-br", "addr", "show", "dev", dev, "scope", "global"},
		{"route", "show", "table", "all", "dev", dev},
		{"-6", "route", "show", "table", "all", "dev", dev},
	} {
		out.WriteString(keep(l.ns.Run("ip", args...)))
	}
	return out.String()
}

// keep drops the lines that the kernel adds itself.
func keep(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")
		if line != "" && !strings.Contains(line, "table local") && !strings.HasPrefix(line, "fe80::") && !strings.HasPrefix(line, "multicast") {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

// eachSystem calls seen with the settings of Open vSwitch after each change of them.
type eachSystem struct {
	ovs.Client
	seen func(map[string]string)
}

func (e eachSystem) SetSystem(ctx context.Context, ids map[string]string) error {
	if err := e.Client.SetSystem(ctx, ids); err != nil {
		return err
	}
	now, err := e.Client.System(ctx)
	e.seen(now)
	return err
}

// TestRemoteComesLast: ovn-controller gets the address of its database only after
// the tunnel endpoint is set.
func TestRemoteComesLast(t *testing.T) {
	l := newLab(t)
	connected := false
	g := l.start(eachSystem{l.db, func(ids map[string]string) {
		connected = ids[idRemote] != ""
		if connected && ids[idEncapIP] == "" {
			t.Errorf("ovn-controller connects and does not know where tunnels end: %v", ids)
		}
	}})
	l.mustPass(g)
	if !connected {
		t.Error("ovn-controller does not know its database")
	}
}

func TestBringUp(t *testing.T) {
	l := newLab(t)
	golden.Check(t, "uplink-before", l.attachment("eth0"))
	g := l.start(l.db)
	l.mustPass(g)
	golden.Check(t, "bridge-after", l.attachment("breth0"))
	golden.Check(t, "uplink-after", l.attachment("eth0"))
	l.reachable()
	if got := g.Waiting(); got != "the master to assign pod subnets" {
		t.Errorf("waits for %q", got)
	}
	select {
	case <-g.Contributed():
		t.Error("everything counts as contributed before the pod subnets are known")
	default:
	}
	l.annotate(kube.AnnotationNodeSubnets, subnets)
	l.patchPort()
	l.mustPass(g)
	select {
	case <-g.Contributed():
	default:
		t.Error("not everything was contributed")
	}
	l.reachable()
	l.claim()
	l.mustPass(g)
	select {
	case <-g.Ready():
	default:
		t.Errorf("not ready: %s", g.Waiting())
	}
	// If something is lost later, this is reported as well, as long as it lasts.
	l.vs.Run("ovs-vsctl", "remove", "interface", topology.ManagementPort, "external_ids", "ovn-installed")
	const claim = "ovn-controller to install the flows of ovn-k8s-mp0"
	eventually.True(t, "what the node lacks again", func() bool {
		l.mustPass(g)
		return g.Waiting() == claim
	})
	if all := g.waits(); len(all) != 1 || all[0].Object != nodeName || all[0].For != claim || all[0].Reason != waits.ReasonNetwork || all[0].Since.IsZero() {
		t.Errorf("waits are %v", all)
	}
	l.claim()
	eventually.True(t, "nothing to be missing", func() bool {
		l.mustPass(g)
		return g.Waiting() == "" && len(g.waits()) == 0
	})
}
