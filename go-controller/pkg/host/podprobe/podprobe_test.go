package podprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// pods creates the namespace of a pod, which ends with the test, next to the node's, and returns
// its path. The node has the other end of the pod's link.
func pods(t *testing.T, node *netnstest.NS) string {
	t.Helper()
	made, hold := make(chan int, 1), make(chan struct{})
	t.Cleanup(func() { close(hold) })
	go func() {
		defer func() { <-hold }()
		made <- netnstest.New(t).FD()
	}()
	netns := fmt.Sprintf("/proc/self/fd/%d", <-made)
	if err := link.EnsureVeth(link.Veth{Host: "pod", Peer: "eth0", MTU: 1500, Netns: netns}); err != nil {
		t.Fatal(err)
	}
	up := func(dev string, addrs ...string) error {
		_, err := node.Try("ip", "link", "set", dev, "up")
		for _, a := range addrs {
			_, e := node.Try("ip", "addr", "add", a, "dev", dev, "nodad")
			err = errors.Join(err, e)
		}
		return err
	}
	if err := errors.Join(up("pod", "10.244.1.1/24", "fd00:1::1/64"), link.Inside(netns, func() error {
		err := up("eth0", "10.244.1.3/24", "fd00:1::3/64")
		for _, r := range []string{"blackhole 192.0.2.0/24", "unreachable 198.51.100.0/24", "blackhole 2001:db8::/64"} {
			_, e := node.Try("ip", append([]string{"route", "add"}, strings.Fields(r)...)...)
			err = errors.Join(err, e)
		}
		for _, a := range []string{"10.244.1.9", "fd00:1::9"} { // skip duplicate address detection
			_, e := node.Try("ip", "neigh", "add", a, "lladdr", "02:00:00:00:00:09", "dev", "eth0")
			err = errors.Join(err, e)
		}
		return err
	})); err != nil {
		t.Fatal(err)
	}
	return netns
}

const long, short = time.Minute, 90 * time.Millisecond

func TestSend(t *testing.T) {
	node := netnstest.New(t)
	netns := pods(t, node)
	for _, a := range []string{"10.244.1.1", "fd00:1::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(a, "80"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		u, err := net.ListenPacket("udp", net.JoinHostPort(a, "53"))
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		go func() {
			for buf := make([]byte, 100); ; {
				n, from, err := u.ReadFrom(buf)
				if err != nil {
					return
				}
				if string(buf[:n]) != payload {
					t.Errorf("datagram %q", buf[:n])
				}
				_, _ = u.WriteTo(nil, from) // without content
			}
		}()
	}
	for name, tc := range map[string]struct {
		source, to string
		udp        bool
		timeout    time.Duration
		err        error
	}{
		"accepted":              {"10.244.1.3", "10.244.1.1:80", false, long, nil},
		"accepted, IPv6":        {"fd00:1::3", "[fd00:1::1]:80", false, long, nil},
		"refused":               {"10.244.1.3", "10.244.1.1:81", false, long, syscall.ECONNREFUSED},
		"refused, IPv6":         {"fd00:1::3", "[fd00:1::1]:81", false, long, syscall.ECONNREFUSED},
		"unanswered":            {"10.244.1.3", "10.244.1.9:80", false, short, os.ErrDeadlineExceeded},
		"blackhole":             {"10.244.1.3", "192.0.2.1:80", false, long, syscall.EINVAL},
		"unreachable":           {"10.244.1.3", "198.51.100.1:80", false, long, syscall.EHOSTUNREACH},
		"no route":              {"10.244.1.3", "203.0.113.1:80", false, long, syscall.ENETUNREACH},
		"datagram":              {"10.244.1.3", "10.244.1.1:53", true, long, nil},
		"datagram, IPv6":        {"fd00:1::3", "[fd00:1::1]:53", true, long, nil},
		"datagram refused":      {"10.244.1.3", "10.244.1.1:54", true, long, syscall.ECONNREFUSED},
		"datagram unanswered":   {"10.244.1.3", "10.244.1.9:53", true, short, os.ErrDeadlineExceeded},
		"datagram, IPv6, alone": {"fd00:1::3", "[fd00:1::9]:53", true, short, os.ErrDeadlineExceeded},
		"datagram unroutable":   {"10.244.1.3", "203.0.113.1:53", true, long, syscall.ENETUNREACH},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Send(t.Context(), Probe{Netns: netns, Source: netip.MustParseAddr(tc.source), To: netip.MustParseAddrPort(tc.to), UDP: tc.udp, Timeout: tc.timeout})
			if err != nil || r.Err != tc.err { //nolint:errorlint // as it is, without what was done
				t.Errorf("%+v, %v; want %v", r, err, tc.err)
			}
			if r.From.Addr().String() != tc.source || r.From.Port() < 1024 {
				t.Errorf("sent from %s", r.From)
			}
		})
	}
	// Nothing remains in the namespace except what the kernel remembers of closed connections.
	eventually.Succeeds(t, "sockets of the pod to go", func() error {
		return link.Inside(netns, func() error {
			out, err := node.Try("ss", "-Htuan", "state", "all", "exclude", "time-wait")
			if err == nil && out != "" {
				err = errors.New(out)
			}
			return err
		})
	})
}

// TestSendsNothing: nothing is sent from an address that is not the pod's.
func TestSendsNothing(t *testing.T) {
	node := netnstest.New(t)
	netns := pods(t, node)
	listener, err := net.Listen("tcp", "10.244.1.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, p := range map[string]Probe{
		"another pod's address": {Netns: netns, Source: netip.MustParseAddr("10.244.1.4")},
		"no namespace":          {Netns: "/proc/self/fd/99999", Source: netip.MustParseAddr("10.244.1.3")},
		"of something else":     {Netns: "/proc/self/ns/mnt", Source: netip.MustParseAddr("10.244.1.3")},
	} {
		p.To, p.Timeout = netip.MustParseAddrPort("10.244.1.1:80"), long
		if r, err := Send(t.Context(), p); err == nil || !strings.Contains(err.Error(), p.Source.String()) || r.From.IsValid() {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if _, err := Send(t.Context(), Probe{Netns: netns, Source: netip.MustParseAddr("10.244.1.3"), To: netip.MustParseAddrPort("10.244.1.1:80"), Timeout: long}); err != nil {
		t.Error(err)
	}
}

// TestSendEnds: a probe ends with its request's context.
func TestSendEnds(t *testing.T) {
	node := netnstest.New(t)
	netns := pods(t, node)
	for _, udp := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan Result, 1)
		go func() {
			r, err := Send(ctx, Probe{Netns: netns, Source: netip.MustParseAddr("10.244.1.3"), To: netip.MustParseAddrPort("10.244.1.9:80"), UDP: udp, Timeout: long})
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()
		cancel()
		if r := <-done; r.Err == nil {
			t.Errorf("UDP %v: %+v", udp, r)
		}
	}
}
