package table

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestFind looks up tables by number and by name; a table without routes does not count. VRF
// devices are not tested: they need a kernel module that not every machine has.
func TestFind(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("uplink", "peer")
	ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "uplink")
	dir := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("rt_tables", "# reserved\n255\tlocal\n254 main\n\n0x64 blue # comment\nnonsense\n7 a b\n-1 minus\n")
	write("rt_tables.d/more.conf", "101 green\n100 red\n")
	f := Finder{Dirs: []string{"/nonexistent", dir}}
	check := func(network string, number int, ok bool, without ...topology.Family) {
		t.Helper()
		table, found, err := f.Find(network)
		if len(without) > 0 && table.Without != without[0] {
			t.Errorf("%s has no route of %s, want %s", network, table.Without, without[0])
		}
		table.Without = 0
		if err != nil || found != ok || ok && table != (host.RoutingTable{Number: number}) {
			t.Errorf("%s: %+v, %t, %v; want %d, %t", network, table, found, err, number, ok)
		}
	}
	check("main", 254, true)
	check("254", 254, true)
	for _, none := range []string{"blue", "100", "green", "minus", "nonsense", "a", "0", "uplink", "nobody", "99999999999"} {
		check(none, 0, false)
	}
	ns.Run("ip", "route", "add", "default", "via", "192.0.2.9", "table", "100")
	check("blue", 100, true, topology.IPv6)
	check("red", 100, true)
	check("100", 100, true)
	ns.Run("ip", "-6", "route", "add", "unreachable", "2001:db8::/32", "table", "101")
	check("green", 101, true, topology.IPv4)
	ns.Run("ip", "route", "add", "unreachable", "198.51.100.0/24", "table", "101")
	check("green", 101, true, 0)
	ns.Run("ip", "route", "flush", "table", "100")
	check("blue", 100, false)
}
