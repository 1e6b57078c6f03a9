package machine

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

// TestMain lets the test binary run as the first process of the machines it creates,
// as the kin binary does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		var err error
		switch os.Args[1] {
		case SetupCommand:
			err = Setup(os.Args[2], os.Args[3], os.Args[4])
		case MainCommand:
			err = Main()
		case RunCommand:
			err = Become(os.Args[2:])
		default:
			os.Exit(m.Run())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(127)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lab is a wire and two machines on it.
type lab struct {
	t    *testing.T
	root string
	top  string // control group
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("makes namespaces, which the quick tests do not")
	}
	l := &lab{t: t, root: t.TempDir(), top: fmt.Sprintf("kin-test-%d", os.Getpid())}
	l.save("wire", Spec{Forward: "172.31.0.2:7000", Bridges: []Bridge{
		{Name: "br0", Addresses: []netip.Prefix{netip.MustParsePrefix("172.31.0.1/24")}},
		{Name: "br1", Addresses: []netip.Prefix{netip.MustParsePrefix("172.31.1.1/24")}},
	}})
	l.node("a", "172.31.0.2/24", supervise.Unit{
		Name: "server", Exec: []string{"busybox", "nc", "-ll", "-p", "7000", "-e", "hostname"}, Ready: &supervise.Probe{Exec: []string{"sh", "-c", "busybox netstat -ltn | grep -q :7000"}},
	})
	l.node("b", "172.31.0.3/24")
	t.Cleanup(l.down)
	return l
}

func (l *lab) dir(name string) Dir { return Dir(filepath.Join(l.root, name)) }

func (l *lab) save(name string, s Spec) {
	l.t.Helper()
	s.Cluster, s.Hostname, s.Cgroup, s.CPUWeight = "test", name, l.top+"/"+name, 25
	if err := l.dir(name).Save(s); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) node(name, address string, units ...supervise.Unit) {
	l.t.Helper()
	d := l.dir(name)
	if err := MakeDisk(d.Disk(), name, "127.0.0.1 localhost\n"); err != nil {
		l.t.Fatal(err)
	}
	// MAC addresses are stable, as on real machines: neighbors that remember another one would not reach the machine.
	number := address[len("172.31.0.") : len("172.31.0.")+1]
	second := netip.MustParsePrefix("172.31.1." + number + "/24")
	l.save(name, Spec{
		Disk: d.Disk(), Binds: EtcBinds(), Units: units, Sysctls: QuietSysctls("eth0", "eth1"),
		Uplinks: []Uplink{
			{Name: "eth0", Port: "port-" + name, Bridge: "br0", MAC: "02:42:ac:1f:00:0" + number, MTU: 1500, Addresses: []netip.Prefix{netip.MustParsePrefix(address)}, Gateways: []netip.Addr{netip.MustParseAddr("172.31.0.1")}},
			{Name: "eth1", Port: "second-" + name, Bridge: "br1", MAC: "02:42:ac:1f:01:0" + number, MTU: 1500, Addresses: []netip.Prefix{second}},
		},
	})
}

func (l *lab) boot(name string) Process {
	l.t.Helper()
	spec, err := l.dir(name).Load()
	if err != nil {
		l.t.Fatal(err)
	}
	wire, on := l.dir("wire").Running()
	if !on {
		l.t.Fatal("the wire is not running")
	}
	p, err := Boot(l.dir(name), func(p Process) error {
		for _, u := range spec.Uplinks {
			if err := Plug(wire, u, p); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

func (l *lab) run(name string, argv ...string) (string, error) {
	var out bytes.Buffer
	err := Command(l.dir(name), argv, func(c *exec.Cmd) { c.Stdin, c.Stdout, c.Stderr = nil, &out, &out })
	return strings.TrimSpace(out.String()), err
}

func (l *lab) must(name string, argv ...string) string {
	l.t.Helper()
	out, err := l.run(name, argv...)
	if err != nil {
		l.t.Fatalf("%v in %s: %v: %s", argv, name, err, out)
	}
	return out
}

func (l *lab) await(what string, is func() bool) {
	l.t.Helper()
	deadline := time.After(15 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			l.t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

// down ends everything and checks that nothing remains.
func (l *lab) down() {
	for _, name := range []string{"a", "b", "wire"} {
		if err := Kill(l.dir(name)); err != nil {
			l.t.Error(err)
		}
	}
	if err := RemoveCgroup(l.top); err != nil {
		l.t.Error(err)
	}
	left, err := filepath.Glob(cgroupRoot + "/*/" + l.top)
	if err != nil || len(left) > 0 {
		l.t.Errorf("control groups remain: %v, %v", left, err)
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil || strings.Contains(string(mounts), l.root) {
		l.t.Errorf("mounts remain (%v)", err)
	}
}

func TestMachines(t *testing.T) {
	l := newLab(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Boot(l.dir("wire"), nil, file); err != nil {
		t.Fatal(err)
	}
	file.Close()
	listener.Close()
	first := l.boot("a")
	l.boot("b")
	address := listener.Addr().String()

	t.Run("the machines have their share of the processors", func(t *testing.T) {
		var seen int
		for file, want := range map[string]string{"cpu.shares": "256", "cpu.weight": "25"} {
			for _, dir := range []string{cgroupRoot, filepath.Join(cgroupRoot, "*")} {
				files, err := filepath.Glob(filepath.Join(dir, l.top, file))
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range files {
					seen++
					if got, err := os.ReadFile(f); err != nil || strings.TrimSpace(string(got)) != want {
						t.Errorf("%s has %q, want %s (%v)", f, got, want, err)
					}
				}
			}
		}
		if seen == 0 {
			t.Error("no control group has a share of the processors")
		}
	})
	t.Run("a machine is one of its own", func(t *testing.T) {
		if got := l.must("a", "hostname"); got != "a" {
			t.Errorf("host name is %s", got)
		}
		if got := l.must("a", "cat", "/proc/1/comm"); got != "kin-init" {
			t.Errorf("first process is %s", got)
		}
		l.must("a", "sh", "-c", "echo kept > /var/lib/note; echo lost > /run/note; echo x > /etc/note; echo x > /opt/note; echo x > /tmp/kin-note")
		for _, path := range []string{"/var/lib/note", "/run/note", "/etc/note", "/opt/note", "/tmp/kin-note"} {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s shows outside", path)
			}
		}
		if out, err := l.run("a", "sh", "-c", "echo 1 > /proc/sys/kernel/printk"); err == nil {
			t.Errorf("a machine may set what belongs to the kernel: %s", out)
		}
		if got := l.must("a", "cat", "/proc/self/cgroup"); strings.Contains(got, "kin-test") {
			t.Errorf("control groups of others show: %s", got)
		}
	})
	t.Run("programs end as they do", func(t *testing.T) {
		_, err := l.run("a", "sh", "-c", "exit 7")
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
			t.Errorf("got %v", err)
		}
		if out, err := l.run("a", "no-such-program"); err == nil || !strings.Contains(out, "no-such-program") {
			t.Errorf("got %v: %s", err, out)
		}
	})
	t.Run("the wire connects", func(t *testing.T) {
		l.must("b", "busybox", "ping", "-c1", "-W2", "172.31.0.2")
		l.must("a", "busybox", "ping", "-c1", "-W2", "172.31.0.1")
		l.must("b", "busybox", "ping", "-c1", "-W2", "-I", "eth1", "172.31.1.2")
		if got := strings.Fields(l.must("wire", "sh", "-c", "ip -o link show master br1 | grep -o 'second-.@\\|port-.@'")); len(got) != 2 {
			t.Errorf("ports of the second switch: %v", got)
		}
		l.await("the forwarder reaches the server", func() bool { return answer(address) == "a" })
	})
	t.Run("power failure and return", func(t *testing.T) {
		boot := l.must("a", "cat", "/proc/sys/kernel/random/boot_id")
		if err := Kill(l.dir("a")); err != nil {
			t.Fatal(err)
		}
		if first.Alive() {
			t.Error("the first process survived")
		}
		if _, err := l.run("a", "true"); err == nil {
			t.Error("a machine that is off runs programs")
		}
		wire, _ := l.dir("wire").Running()
		if err := Unplug(wire, "port-a"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.run("b", "busybox", "ping", "-c1", "-W1", "172.31.0.2"); err == nil {
			t.Error("a machine that is off answers")
		}
		l.boot("a")
		if got := l.must("a", "sh", "-c", "cat /var/lib/note; ls /run/note 2>/dev/null || true"); got != "kept" {
			t.Errorf("after the return there is %q", got)
		}
		if l.must("a", "cat", "/proc/sys/kernel/random/boot_id") == boot {
			t.Error("the boot id is the old one")
		}
		l.await("the server is back", func() bool { return answer(address) == "a" })
	})
	t.Run("orderly shutdown", func(t *testing.T) {
		p, _ := l.dir("b").Running()
		if err := Stop(l.dir("b"), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if p.Alive() {
			t.Error("the first process survived")
		}
	})
}

func answer(address string) string {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return ""
	}
	text := make([]byte, 64)
	n, _ := conn.Read(text)
	return strings.TrimSpace(string(text[:n]))
}
