package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func path(ns *netnstest.NS) string { return fmt.Sprintf("/proc/self/fd/%d", ns.FD()) }

func TestAddrs(t *testing.T) {
	ns := netnstest.New(t)
	ns.Run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there")
	ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "here")
	ns.Run("ip", "addr", "add", "2001:db8::1/64", "dev", "there", "nodad")
	got, err := Addrs()
	must(t, err)
	for _, want := range []string{"192.0.2.1", "2001:db8::1"} {
		if !got[netip.MustParseAddr(want)] {
			t.Errorf("%s is not among %v", want, got)
		}
	}
}

func TestSettings(t *testing.T) {
	ns := netnstest.New(t)
	ns.Run("ip", "link", "add", "a.b", "type", "veth", "peer", "name", "wire")
	for i := range 2 { // everything may be repeated
		must(t, SetMTU("a.b", 1400))
		must(t, SetMAC("a.b", "0A:58:0a:f4:01:02"))
		wasDown, err := Up("a.b")
		must(t, err)
		if wasDown != (i == 0) {
			t.Errorf("call %d of Up says that the link was down: %v", i+1, wasDown)
		}
		must(t, SetLinkSysctl(topology.IPv4, "a.b", "rp_filter", "2"))
		must(t, SetLinkSysctl(topology.IPv6, "a.b", "accept_ra", "0"))
		must(t, SetSysctl("net/ipv4/ip_forward", "1"))
	}
	if got := ns.Run("ip", "-o", "link", "show", "a.b"); !strings.Contains(got, "mtu 1400") || !strings.Contains(got, "UP") ||
		!strings.Contains(got, "0a:58:0a:f4:01:02") {
		t.Error(got)
	}
	if got := ns.Run("cat", "/proc/sys/net/ipv4/conf/a.b/rp_filter"); got != "2" {
		t.Errorf("rp_filter is %s", got)
	}
	if mac, err := MAC("a.b"); err != nil || mac != "0a:58:0a:f4:01:02" {
		t.Errorf("MAC %s, %v", mac, err)
	}
	if err := SetMTU("gone", 1); !IsNotFound(err) {
		t.Errorf("a link that is not there: %v", err)
	}
	if err := SetSysctl("net/ipv4/no_such", "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a parameter that is not there: %v", err)
	}
	must(t, Delete("a.b"))
	must(t, Delete("a.b"))
	if ok, err := Exists("a.b"); ok || err != nil {
		t.Errorf("it exists: %v, %v", ok, err)
	}
}

// TestVeth: the pair of a pod is created once, kept, and recreated if its other end is gone or
// belongs to another pod.
func TestVeth(t *testing.T) {
	first, second := make(chan *netnstest.NS, 1), make(chan *netnstest.NS, 1)
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	ns := netnstest.New(t)
	for _, pod := range []chan *netnstest.NS{first, second} {
		go func() { // a pod's namespace lives as long as its file descriptor
			defer func() { <-hold }()
			pod <- netnstest.New(t)
		}()
	}
	pod1, pod2 := <-first, <-second
	v := Veth{Host: "pod0", Peer: "eth0", PeerMAC: "0a:58:0a:f4:01:05", MTU: 1400, Netns: path(pod1)}
	index := func() string { return strings.SplitN(ns.Run("ip", "-o", "link", "show", "pod0"), ":", 2)[0] }
	must(t, EnsureVeth(v))
	made := index()
	must(t, EnsureVeth(v))
	if index() != made {
		t.Error("the pair was made again although it was right")
	}
	must(t, Inside(v.Netns, func() error {
		mac, err := MAC("eth0")
		if err == nil && mac != v.PeerMAC {
			err = fmt.Errorf("the peer's address is %s", mac)
		}
		l, lerr := net.InterfaceByName("eth0")
		if lerr == nil && l.MTU != 1400 {
			err = fmt.Errorf("the peer's MTU is %d", l.MTU)
		}
		return errors.Join(err, lerr)
	}))

	v.Netns = path(pod2)
	must(t, EnsureVeth(v))
	if index() == made {
		t.Error("another pod got the old pair")
	}
	must(t, Inside(path(pod1), func() error {
		ok, err := Exists("eth0")
		if ok {
			return errors.New("the old pod still has eth0")
		}
		return err
	}))
	made = index()
	must(t, Inside(v.Netns, func() error { return Delete("eth0") }))
	must(t, EnsureVeth(v))
	if index() == made {
		t.Error("a pair without peer was kept")
	}
	if err := Inside("/proc/self/fd/99999", func() error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a namespace that is not there: %v", err)
	}
}

// TestMute: a muted link answers nothing, and answers again when unmuted.
func TestMute(t *testing.T) {
	peer := make(chan *netnstest.NS, 1)
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	ns := netnstest.New(t)
	go func() {
		defer func() { <-hold }()
		peer <- netnstest.New(t)
	}()
	other := path(<-peer)
	must(t, EnsureVeth(Veth{Host: "eth0", Peer: "wire", MTU: 1500, Netns: other}))
	ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	must(t, Inside(other, func() error {
		_, err := ns.Try("ip", "addr", "add", "192.0.2.2/24", "dev", "wire")
		if err == nil {
			_, err = Up("wire")
		}
		return err
	}))
	// A closed port answers with a reset, a muted link not at all.
	answers := func() bool {
		var err error
		must(t, Inside(other, func() error {
			_, err = net.DialTimeout("tcp", "192.0.2.1:9", 300*time.Millisecond)
			return nil
		}))
		return errors.Is(err, unix.ECONNREFUSED)
	}
	eventually.True(t, "an answer", answers)
	for range 2 {
		must(t, Mute("eth0"))
		if answers() {
			t.Error("a muted link answered")
		}
	}
	if got := ns.Run("cat", "/proc/sys/net/ipv6/conf/eth0/disable_ipv6"); got != "1" {
		t.Errorf("disable_ipv6 is %s", got)
	}
	if got := ns.Run("nft", "list", "ruleset"); strings.Count(got, "policy drop") != 1 {
		t.Errorf("muted twice:\n%s", got)
	}
	for range 2 {
		must(t, Unmute("eth0"))
	}
	eventually.True(t, "an answer again", answers)

	// A link that is recreated under the same name is muted again.
	must(t, Mute("eth0"))
	must(t, Delete("eth0"))
	must(t, EnsureVeth(Veth{Host: "eth0", Peer: "wire", MTU: 1500, Netns: other}))
	ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	must(t, Inside(other, func() error {
		_, err := ns.Try("ip", "addr", "add", "192.0.2.2/24", "dev", "wire")
		if err == nil {
			_, err = Up("wire")
		}
		return err
	}))
	must(t, Mute("eth0"))
	if answers() {
		t.Error("a link that came back answered after Mute")
	}
	must(t, UnmuteAll())
	must(t, UnmuteAll())
	must(t, Unmute("gone"))
	if err := Mute("gone"); !IsNotFound(err) {
		t.Errorf("a link that is not there: %v", err)
	}
	eventually.True(t, "an answer after UnmuteAll", answers)
}

func TestOffloadsOff(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth0", "wire")
	for range 2 {
		must(t, OffloadsOff("eth0"))
	}
	got := ns.Run("ethtool", "-k", "eth0")
	for _, feature := range []string{"tx-checksumming", "tcp-segmentation-offload", "generic-segmentation-offload"} {
		if !strings.Contains(got, feature+": off") {
			t.Errorf("%s is still on:\n%s", feature, got)
		}
	}
	if !strings.Contains(got, "rx-checksumming: on") {
		t.Error("receive offloads were touched")
	}
	if err := OffloadsOff("gone"); err == nil {
		t.Error("no error for a link that is not there")
	}
}

func TestWaitAndWatch(t *testing.T) {
	ns := netnstest.New(t)
	changes := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	must(t, Watch(ctx, func() { changes <- struct{}{} }))
	limited, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := Wait(limited, "eth0"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waited for what did not come: %v", err)
	}
	waited := make(chan error, 1)
	ns.Go(func() { waited <- Wait(t.Context(), "eth0") })
	ns.Veth("eth0", "wire")
	must(t, <-waited)
	drain := func() {
		for {
			select {
			case <-changes:
			default:
				return
			}
		}
	}
	for what, args := range map[string][]string{
		"address": {"addr", "add", "192.0.2.1/24", "dev", "eth0"},
		"route":   {"route", "add", "unreachable", "198.51.100.0/24"},
		"rule":    {"rule", "add", "from", "192.0.2.9", "table", "5"},
		"mtu":     {"link", "set", "eth0", "mtu", "1400"},
	} {
		drain()
		ns.Run("ip", args...)
		eventually.Receive(t, "a change of "+what+" to be noticed", changes)
	}
	cancel()
}

// TestAcceptMarked: a link accepts frames to a second MAC address and marks them, also after it was
// recreated.
func TestAcceptMarked(t *testing.T) {
	const second, mark = "0a:58:0a:f4:01:00", 1009
	peer := make(chan *netnstest.NS, 1)
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	ns := netnstest.New(t)
	go func() {
		defer func() { <-hold }()
		peer <- netnstest.New(t)
	}()
	other := path(<-peer)
	attach := func() {
		must(t, EnsureVeth(Veth{Host: "eth0", Peer: "wire", MTU: 1500, Netns: other}))
		ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
		must(t, Inside(other, func() error {
			for _, args := range [][]string{{"addr", "add", "192.0.2.2/24", "dev", "wire"}, {"link", "set", "wire", "up"},
				{"neigh", "replace", "192.0.2.1", "lladdr", second, "dev", "wire", "nud", "permanent"}} {
				if _, err := ns.Try("ip", args...); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	attach()
	answers := func() bool { // a closed port answers with a reset
		var err error
		must(t, Inside(other, func() error {
			_, err = net.DialTimeout("tcp", "192.0.2.1:9", 300*time.Millisecond)
			return nil
		}))
		return errors.Is(err, unix.ECONNREFUSED)
	}
	if answers() {
		t.Fatal("a link answers for any MAC address")
	}
	ns.Run("iptables", "-A", "INPUT", "-m", "mark", "!", "--mark", "1009", "-j", "DROP")
	for range 2 {
		must(t, AcceptMarked("eth0", second, mark))
		eventually.True(t, "an answer", answers)
	}
	rules := ns.Run("nft", "-a", "list", "table", "netdev", acceptTable)
	must(t, AcceptMarked("eth0", second, mark))
	if again := ns.Run("nft", "-a", "list", "table", "netdev", acceptTable); again != rules || strings.Count(rules, "pkttype") != 1 {
		t.Errorf("what stood was written again:\n%s\nbefore:\n%s", again, rules)
	}
	must(t, AcceptMarked("eth0", "0a:58:0a:f4:02:00", mark))
	if answers() {
		t.Error("the MAC address before is still accepted")
	}
	must(t, Delete("eth0"))
	attach()
	must(t, AcceptMarked("eth0", second, mark))
	eventually.True(t, "an answer of the link that came back", answers)
	for range 2 {
		must(t, AcceptNothing())
	}
	if answers() {
		t.Error("accepted after AcceptNothing")
	}
	if err := AcceptMarked("gone", second, mark); !IsNotFound(err) {
		t.Errorf("a link that is not there: %v", err)
	}
}
