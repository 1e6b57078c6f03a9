package snatguard

import (
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestForgottenConnection has a pod close a connection that its node has forgotten: it is reset
// immediately, and the other side gets no packet with the address of the pod.
func TestForgottenConnection(t *testing.T) {
	node, pods, outside := forwards(t)
	g := New(cluster, "mp0")
	if err := g.Ensure(); err != nil {
		t.Fatal(err)
	}
	rules := node.Run("nft", "list", "table", "inet", tableName)
	if n := strings.Count(rules, "limit rate 1000/second burst 1000 packets"); n != 1+len(cluster) || n != strings.Count(rules, "reject with tcp reset") {
		t.Errorf("%d answers are limited:\n%s", n, rules)
	}
	unmarked := []string{"POSTROUTING", "-o", "mp0", "-p", "tcp", "--tcp-flags", "RST", "RST", "-m", "mark", "!", "--mark", strconv.Itoa(topology.MarkReset), "-j", "DROP"}
	for _, program := range []string{"iptables", "ip6tables"} { // as OVN does
		node.Run(program, append([]string{"-t", "mangle", "-A"}, unmarked...)...)
	}
	counted := uint64(0)
	for i, addr := range []string{"192.0.2.9", "2001:db8::9"} {
		var server net.Listener
		var client, accepted net.Conn
		inside := func(where string, f func() error) {
			t.Helper()
			if err := link.Inside(where, f); err != nil {
				t.Fatal(err)
			}
		}
		inside(outside, func() (err error) {
			server, err = net.Listen("tcp", net.JoinHostPort(addr, "0"))
			return err
		})
		t.Cleanup(func() { server.Close() })
		eventually.Succeeds(t, "a connection to "+addr, func() error {
			return link.Inside(pods, func() (err error) {
				client, err = net.DialTimeout("tcp", server.Addr().String(), time.Second)
				return err
			})
		})
		accepted, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close(); accepted.Close() })
		if i == 0 { // a known connection ends as usual
			var known net.Conn
			inside(pods, func() (err error) {
				known, err = net.DialTimeout("tcp", server.Addr().String(), 10*time.Second)
				return err
			})
			ends, err := server.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer ends.Close()
			if err := errors.Join(known.Close(), ends.SetReadDeadline(time.Now().Add(10*time.Second))); err != nil {
				t.Fatal(err)
			}
			if _, err := ends.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("the other side of a known connection hears %v, want its end", err)
			}
		}
		node.Run("conntrack", "-F")
		if err := client.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := client.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: the pod hears %v, want a reset", addr, err)
		}
		if err := accepted.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := accepted.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			t.Errorf("%s: the end of a connection that nobody translates has come", addr)
		}
		if dropped, err := g.Dropped(); err != nil || dropped <= counted {
			t.Errorf("%s: %d counted, %d before: %v", addr, dropped, counted, err)
		} else {
			counted = dropped
		}
	}
}

// TestKernelWithoutReject: the rest of the guard is installed if the kernel cannot answer.
func TestKernelWithoutReject(t *testing.T) {
	ns := netnstest.New(t)
	g := New(cluster, "mp0")
	g.answer = &expr.Match{Name: "of-no-kernel", Info: &xt.Unknown{}}
	g.early = g.answer
	if err := g.Ensure(); err != nil {
		t.Fatal(err)
	}
	before := ns.Run("nft", "-a", "list", "table", "inet", tableName)
	if g.answer != nil || g.early != nil || strings.Contains(before, "reject") || strings.Count(before, "drop") != 2+len(cluster) {
		t.Errorf("has\n%s", before)
	}
	if err := g.Ensure(); err != nil {
		t.Fatal(err)
	}
	if got := ns.Run("nft", "-a", "list", "table", "inet", tableName); got != before {
		t.Errorf("a guard that stands was written again:\n%s\nbefore:\n%s", got, before)
	}
}

// TestKernelWithoutEarlyReject: kernels that cannot answer before routing still answer for
// connections that the host itself translates.
func TestKernelWithoutEarlyReject(t *testing.T) {
	ns := netnstest.New(t)
	g := New(cluster, "mp0")
	g.early = &expr.Redir{} // which is not allowed here, either
	if err := g.Ensure(); err != nil {
		t.Fatal(err)
	}
	before := ns.Run("nft", "-a", "list", "table", "inet", tableName)
	if strings.Count(before, "reject") != 1 || strings.Count(before, "drop") != 2+len(cluster) {
		t.Errorf("has\n%s", before)
	}
	if err := g.Ensure(); err != nil {
		t.Fatal(err)
	}
	if got := ns.Run("nft", "-a", "list", "table", "inet", tableName); got != before {
		t.Errorf("a guard that stands was written again:\n%s\nbefore:\n%s", got, before)
	}
}
