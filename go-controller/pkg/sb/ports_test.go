package sb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// portsLab follows ports.
type portsLab struct {
	t *testing.T
	*Ports

	mu   sync.Mutex
	told []string
}

func followPorts(t *testing.T, s *ovsdbtest.Server, node string) *portsLab {
	t.Helper()
	l := &portsLab{t: t, Ports: NewPorts(nbovsdb.Config{Address: s.Socket()}, node)}
	l.OnChange(func(port string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.told = append(l.told, port)
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return l
}

// show returns what is known of a port; "-" for nothing.
func (l *portsLab) show(name string) string {
	p, ok := l.Port(name)
	if !ok {
		return "-"
	}
	return fmt.Sprint(p.UID, " ", p.MAC, " ", p.Addrs)
}

func (l *portsLab) eventually(name, want string) {
	l.t.Helper()
	eventually.Succeeds(l.t, "port "+name, func() error {
		if got := l.show(name); got != want {
			return fmt.Errorf("it is %s, not %s", got, want)
		}
		return nil
	})
}

// TestPorts follows the ports that northd creates from those of the northbound database, through changes,
// recreation and a restart of the database.
func TestPorts(t *testing.T) {
	o := ovntrace.Start(t)
	add := func(name, node, uid, addresses string) {
		o.NB.Nbctl("--may-exist", "lsp-add", node, name, "--", "lsp-set-addresses", name, addresses,
			"--", "lsp-set-options", name, "requested-chassis="+node, "iface-id-ver="+uid)
	}
	o.NB.Nbctl("ls-add", "n", "--", "ls-add", "m")
	add("ns_a", "n", "uid-a", "0a:58:0a:f4:01:03 10.244.1.3 fd00:10:244:2::3")
	add("ns_far", "m", "uid-far", "0a:58:0a:f4:02:03 10.244.2.3")
	o.NB.Nbctl("lsp-add", "n", "k8s-n", "--", "lsp-set-addresses", "k8s-n", "0a:58:0a:f4:01:02 10.244.1.2")
	near, all := followPorts(t, o.SB, "n"), followPorts(t, o.SB, "")
	for _, l := range []*portsLab{near, all} {
		l.eventually("ns_a", "uid-a 0a:58:0a:f4:01:03 [10.244.1.3 fd00:10:244:2::3]")
	}
	all.eventually("ns_far", "uid-far 0a:58:0a:f4:02:03 [10.244.2.3]")
	<-near.Synced()

	add("ns_b", "n", "uid-b", "0a:58:0a:f4:01:04 10.244.1.4")
	add("ns_many", "n", "uid-many", `0a:58:0a:f4:01:01 10.244.1.66 10.244.1.67`)
	add("ns_a", "n", "uid-a2", "0a:58:0a:f4:01:05 10.244.1.5")
	o.NB.Nbctl("lsp-del", "ns_far")
	near.eventually("ns_b", "uid-b 0a:58:0a:f4:01:04 [10.244.1.4]")
	for _, l := range []*portsLab{near, all} {
		l.eventually("ns_a", "uid-a2 0a:58:0a:f4:01:05 [10.244.1.5]")
		l.eventually("ns_far", "-")
	}
	near.mu.Lock()
	if slices.Contains(near.told, "ns_far") {
		t.Error("a node hears of ports of others")
	}
	near.mu.Unlock()
	for _, name := range []string{"ns_many", "k8s-n", "none"} {
		if got := all.show(name); got != "-" {
			t.Errorf("%s is taken for a pod's port: %s", name, got)
		}
	}

	o.SB.Kill()
	eventually.Succeeds(t, "the loss to be noticed", func() error {
		if err := near.Err(); err == nil || !strings.Contains(err.Error(), o.SB.Socket()) {
			return fmt.Errorf("it says something else: %w", err)
		}
		return nil
	})
	near.eventually("ns_b", "uid-b 0a:58:0a:f4:01:04 [10.244.1.4]") // the last known state
	o.NB.Nbctl("lsp-del", "ns_b")
	add("ns_c", "n", "uid-c", "0a:58:0a:f4:01:06 10.244.1.6")
	o.SB.Start()
	for _, l := range []*portsLab{near, all} {
		l.eventually("ns_b", "-")
		l.eventually("ns_c", "uid-c 0a:58:0a:f4:01:06 [10.244.1.6]")
	}
	eventually.Succeeds(t, "the connection", near.Err)
	near.mu.Lock()
	defer near.mu.Unlock()
	for _, name := range []string{"ns_a", "ns_b", "ns_c"} {
		if !slices.Contains(near.told, name) {
			t.Errorf("nobody was told of %s", name)
		}
	}
}
