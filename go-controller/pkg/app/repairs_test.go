package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/addr"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iprule"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/settings"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/snatguard"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/watch"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// repairing makes the test binary a process that writes one object of each kind in its network
// namespace, and repairs them: the drivers' goroutines have to be in that namespace, too.
const repairing = "REPAIRS_TEST_NAMESPACE"

// noRecord is the settings.Store of a host without Open vSwitch.
type noRecord map[string]string

func (r noRecord) System(context.Context) (map[string]string, error) { return r, nil }

func (r noRecord) SetSystem(_ context.Context, ids map[string]string) error {
	for k, v := range ids {
		r[k] = v
	}
	return nil
}

// TestMain makes the test binary another process if an environment variable says so.
func TestMain(m *testing.M) {
	for variable, process := range map[string]func() error{repairing: repair, pausedName: givesAddresses} {
		if os.Getenv(variable) == "" {
			continue
		}
		if err := process(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// repair is that process; it prints "ready", and ends when its standard input is closed.
func repair() error {
	if mine, err := os.Readlink("/proc/self/ns/net"); err != nil || mine == os.Getenv(repairing) {
		return fmt.Errorf("refusing to run in the network namespace of the machine: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	chains4 := host.ChainKey{Family: topology.IPv4, Table: "nat", Name: "OVN-KUBE-TEST"}
	chains6 := host.ChainKey{Family: topology.IPv6, Table: "nat", Name: "OVN-KUBE-TEST"}
	jump := []host.Jump{{From: "POSTROUTING"}}
	w, err := iptables.New([]host.Chain{{ChainKey: chains4, Jumps: jump}, {ChainKey: chains6, Jumps: jump}})
	if err != nil {
		return err
	}
	rule := []host.Rule{host.Spec{Comment: "x", Target: "RETURN"}.Rule()}
	routeSet, addrSet, ruleSet := route.NewSet(), addr.NewSet(addr.New(nil, "eth0")), iprule.NewSet()
	parameterSet := settings.NewSet(noRecord{})
	guard := snatguard.New([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, "eth0")
	prefix := netip.MustParsePrefix
	routed, use := map[host.Route]host.Hop{}, map[host.Address]host.AddressUse{}
	ruled := map[host.IPRule]struct{}{}
	for _, f := range []struct{ addr, dst, via, src string }{
		{"192.0.2.1/24", "198.51.100.0/24", "192.0.2.9", "10.244.0.5/32"},
		{"2001:db8::1/64", "2001:db8:1::/64", "2001:db8::9", "fd00:10:244::5/128"},
	} {
		use[host.Address{Link: "eth0", Prefix: prefix(f.addr)}] = host.AddressUse{}
		routed[host.Route{Dst: prefix(f.dst), Link: "eth0"}] = host.Hop{Via: netip.MustParseAddr(f.via)}
		ruled[host.IPRule{Family: topology.FamilyOf(prefix(f.src).Addr()), Priority: topology.RuleEgressServiceNetwork, Src: prefix(f.src), Table: 1111}] = struct{}{}
	}
	wanted := map[string]string{}
	for _, name := range []string{"rp_filter", "send_redirects", "accept_redirects", "src_valid_mark"} {
		wanted["net/ipv4/conf/eth0/"+name] = map[bool]string{true: "0", false: "2"}[strings.HasSuffix(name, "redirects")]
	}
	wanted["net/ipv4/conf/eth0/src_valid_mark"] = "1"
	wanted["net/ipv6/conf/eth0/accept_redirects"] = "0"
	d := hostWriters{
		guard: func() { _ = guard.Ensure() }, events: watch.Watch,
		swept: map[string]sweeper{chains: w, routes: routeSet, addresses: addrSet, ipRules: ruleSet, parameters: parameterSet},
		looks: map[string]func() (string, error){parameters: func() (string, error) { return settings.State(parameterSet.Wanted()) }},
	}
	legacy, err := w.Legacy()
	if err != nil {
		return err
	}
	if legacy {
		d.looks[chains] = w.LegacyState
	}
	d.guard()
	for _, apply := range []func() error{
		func() error { return w.Apply(ctx, "a", host.Rules{chains4: rule, chains6: rule}) },
		func() error { return addrSet.Apply(ctx, "a", use) },
		func() error { return routeSet.Apply(ctx, "a", routed) },
		func() error { return ruleSet.Apply(ctx, "a", ruled) },
		func() error { return parameterSet.Apply(ctx, "a", wanted) },
		func() error { return d.watch(ctx) },
	} {
		if err := apply(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// TestRepairs: what others delete or change is restored quickly, for each kind of kernel objects,
// by notifications or by looking, in both families and with both iptables backends.
func TestRepairs(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) { repairs(t, backend) })
	}
}

func repairs(t *testing.T, backend string) {
	outside, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			program, err := exec.LookPath(name + "-" + backend + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program, filepath.Join(dir, name+suffix)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ns := netnstest.New(t)
	ns.Veth("eth0", "wire")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), repairing+"="+outside)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the process says %q, %v", line, err)
	}
	show := map[string]func() string{
		ipRules: func() string { return ns.Run("ip", "rule") + ns.Run("ip", "-6", "rule") },
		routes: func() string {
			return ns.Run("ip", "route", "show", "proto", "79") + ns.Run("ip", "-6", "route", "show", "proto", "79")
		},
		addresses:  func() string { return ns.Run("ip", "-br", "addr", "show", "dev", "eth0", "scope", "global") },
		parameters: func() string { return parametersOf(ns) },
		chains:     func() string { return rulesOf(ns, "iptables-save") + rulesOf(ns, "ip6tables-save") },
		"guard":    func() string { return ns.Run("nft", "-s", "list", "table", "inet", "ovn-kube-guard") },
	}
	if _, err := ns.Try("nft", "list", "table", "inet", "ovn-kube-guard"); err != nil {
		delete(show, "guard")
	}
	before := map[string]string{}
	for kind, f := range show {
		before[kind] = f()
	}
	for _, c := range []struct{ kind, command string }{
		{ipRules, "ip rule del priority 5000"},
		{ipRules, "ip -6 rule flush protocol 79"},
		{routes, "ip route del 198.51.100.0/24"},
		{routes, "ip -6 route flush proto 79"},
		{addresses, "ip addr del 192.0.2.1/24 dev eth0"},
		{routes, ""},                  // disappeared with the address
		{"", "ip link set eth0 down"}, // nothing can be restored before it is up
		{routes, "ip link set eth0 up"},
		{addresses, ""}, // IPv6 addresses disappeared with the link
		{addresses, "ip addr del 2001:db8::1/64 dev eth0"},
		{routes, ""},
		{parameters, "sysctl -q net.ipv4.conf.eth0.rp_filter=1"},
		{parameters, "sysctl -q net.ipv4.conf.eth0.send_redirects=1"},
		{parameters, "sysctl -q net.ipv4.conf.eth0.accept_redirects=1"},
		{parameters, "sysctl -q net.ipv4.conf.eth0.src_valid_mark=0"},
		{parameters, "sysctl -q net.ipv6.conf.eth0.accept_redirects=1"},
		{chains, "iptables -t nat -F OVN-KUBE-TEST"},
		{chains, "ip6tables -t nat -F OVN-KUBE-TEST"},
		{chains, "iptables -t nat -F POSTROUTING"},
		{chains, "ip6tables -t nat -D POSTROUTING 1"},
		{chains, "nft flush ruleset"},
		{"guard", ""},
	} {
		start := time.Now()
		if words := strings.Fields(c.command); len(words) > 0 {
			ns.Run(words[0], words[1:]...)
		}
		f := show[c.kind]
		if f == nil {
			continue
		}
		last := ""
		eventually.True(t, c.kind+" after "+c.command, func() bool {
			last = f()
			return last == before[c.kind]
		}, eventually.Dump(func() string { return last + "\nnot\n" + before[c.kind] }))
		t.Logf("%4d ms: %s after %s", time.Since(start).Milliseconds(), c.kind, c.command)
	}
}

func parametersOf(ns *netnstest.NS) string {
	return ns.Run("sysctl", "net.ipv4.conf.eth0.rp_filter", "net.ipv4.conf.eth0.send_redirects", "net.ipv4.conf.eth0.accept_redirects",
		"net.ipv4.conf.eth0.src_valid_mark", "net.ipv6.conf.eth0.accept_redirects")
}

func rulesOf(ns *netnstest.NS, save string) string {
	var out strings.Builder
	for line := range strings.Lines(ns.Run(save, "-t", "nat")) {
		if strings.HasPrefix(line, "-A") {
			out.WriteString(line)
		}
	}
	return out.String()
}
