package conntrack

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// turn is how many requests one turn of ovs-vswitchd's main loop executes.
const turn = 10

// TestConcurrentRequests: an ovs-vswitchd that takes long for each turn of its main loop gets several
// requests for each, however connections are chosen.
func TestConcurrentRequests(t *testing.T) {
	const entries = 2 * turn
	var table []string
	var steered []host.Steered
	for i := range entries {
		table = append(table, fmt.Sprintf("udp,orig=(src=10.244.1.3,dst=192.0.2.%d,sport=1,dport=2),reply=(src=192.0.2.%[1]d,dst=172.18.0.%[1]d,sport=2,dport=1)", i))
		steered = append(steered, host.Steered{Zone: 6, Tuple: fmt.Sprint("ct_nw_src=192.0.2.", i)})
	}
	for name, flush := range map[string]func(ctx context.Context, runDir string) error{
		"translations": func(ctx context.Context, runDir string) error {
			_, err := FlushGatewayTranslations(ctx, runDir, func() func(src, dst, to netip.Addr) bool {
				return func(_, _, _ netip.Addr) bool { return true }
			})
			return err
		},
		"stale UDP": func(ctx context.Context, runDir string) error {
			_, err := flushDatapathUDP(ctx, runDir, func(netip.Addr, netip.AddrPort, netip.AddrPort, uint16) bool { return true })
			return err
		},
		"addresses": func(ctx context.Context, runDir string) error {
			var addrs []netip.Addr
			for i := range entries {
				addrs = append(addrs, netip.AddrFrom4([4]byte{172, 18, 0, byte(i)}))
			}
			_, err := FlushOVSAddrs(ctx, runDir, addrs)
			return err
		},
		"steered": func(ctx context.Context, runDir string) error { return FlushSteered(ctx, runDir, steered) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			v := newSlowVswitchd(t, strings.Join(table, "\n"))
			if err := flush(ctx, v.runDir); err != nil {
				t.Error(err)
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			slices.Sort(v.flushed)
			if n := len(slices.Compact(v.flushed)); n != entries {
				t.Errorf("%d entries were flushed, want %d: %q", n, entries, v.flushed)
			}
		})
	}
}

// slowVswitchd is an ovs-vswitchd that answers requests to delete entries when it has as many as one
// turn of its main loop executes.
type slowVswitchd struct {
	runDir, table string
	mu            sync.Mutex
	flushed       []string
}

func newSlowVswitchd(t *testing.T, table string) *slowVswitchd {
	v := &slowVswitchd{runDir: t.TempDir(), table: table}
	if err := os.WriteFile(filepath.Join(v.runDir, "ovs-vswitchd.pid"), []byte("7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(v.runDir, "ovs-vswitchd.7.ctl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go v.serve(conn)
		}
	}()
	return v
}

func (v *slowVswitchd) serve(conn net.Conn) {
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	waiting := 0
	for {
		var request struct {
			Method string
			Params []string
		}
		if in.Decode(&request) != nil {
			return
		}
		result := ""
		switch request.Method {
		case "dpctl/dump-dps":
			result = "netdev@ovs-netdev"
		case "dpctl/dump-conntrack":
			result = v.table
		case "dpctl/flush-conntrack":
			v.mu.Lock()
			v.flushed = append(v.flushed, strings.Join(request.Params, " "))
			v.mu.Unlock()
			if waiting++; waiting < turn {
				continue
			}
		}
		for range max(1, waiting) {
			_ = out.Encode(map[string]any{"id": 0, "result": result, "error": nil})
		}
		waiting = 0
	}
}
