package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestAddressOnHost: if the address of the load balancer is on the host itself, the
// host does not refuse packets to it that belong to no connection of its own: they may belong
// to a pod's connection that has just moved from another host. Neighbours can resolve the address, and
// the host's own requests from it are answered.
func TestAddressOnHost(t *testing.T) {
	made, hold := make(chan int, 1), make(chan struct{})
	t.Cleanup(func() { close(hold) })
	go func() {
		defer func() { <-hold }()
		made <- netnstest.New(t).FD()
	}()
	outside := fmt.Sprintf("/proc/self/fd/%d", <-made)
	ns := netnstest.New(t)
	if err := link.EnsureVeth(link.Veth{Host: "eth0", Peer: "eth0", MTU: 1500, Netns: outside}); err != nil {
		t.Fatal(err)
	}
	vips := []string{"192.0.2.5", "2001:db8::5"}
	place := func(addrs ...string) error {
		for _, a := range addrs {
			args := []string{"addr", "add", a, "dev", "eth0"}
			if netip.MustParsePrefix(a).Addr().Is6() {
				args = append(args, "nodad")
			}
			if _, err := ns.Try("ip", args...); err != nil {
				return err
			}
		}
		_, err := ns.Try("ip", "link", "set", "eth0", "up")
		return err
	}
	err := errors.Join(place("192.0.2.1/24", "2001:db8::1/64", vips[0]+"/32", vips[1]+"/128"),
		link.Inside(outside, func() error { return place("192.0.2.9/24", "2001:db8::9/64") }))
	if err != nil {
		t.Fatal(err)
	}
	const silence = 300 * time.Millisecond
	// dial connects from outside, and reports the result.
	dial := func(to string, patience time.Duration) (refused bool, err error) {
		inside := link.Inside(outside, func() error {
			d := net.Dialer{Timeout: patience}
			var conn net.Conn
			if conn, err = d.Dial("tcp", net.JoinHostPort(to, "4242")); err == nil {
				err = conn.Close()
			}
			return nil
		})
		return errors.Is(err, syscall.ECONNREFUSED), errors.Join(inside, err)
	}
	for _, vip := range vips {
		eventually.True(t, vip+" to refuse, without rules", func() bool { refused, _ := dial(vip, silence); return refused })
	}
	chains, err := iptables.New(egressservice.Chains(topology.Families))
	if err != nil {
		t.Fatal(err)
	}
	given := egressservice.Translations{}
	for i, pod := range []string{"10.244.1.3", "fd00:10:244:2::3"} {
		given[netip.MustParseAddr(pod)] = netip.MustParseAddr(vips[i])
	}
	if err := chains.Apply(t.Context(), "a/b", given.Rules("a/b")); err != nil {
		t.Fatal(err)
	}
	for i, vip := range vips {
		if refused, err := dial(vip, silence); refused || !timedOut(err) {
			t.Errorf("%s said %v, want silence", vip, err)
		}
		if refused, err := dial([]string{"192.0.2.1", "2001:db8::1"}[i], eventually.Bound); !refused {
			t.Errorf("the host's own address said %v", err)
		}
		// The host's own connections from the address.
		d := net.Dialer{Timeout: eventually.Bound, LocalAddr: &net.TCPAddr{IP: net.ParseIP(vip)}}
		if _, err := d.Dial("tcp", net.JoinHostPort([]string{"192.0.2.9", "2001:db8::9"}[i], "4242")); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("from %s: %v, want a refusal", vip, err)
		}
		d.LocalAddr = nil
		if _, err := d.Dial("tcp", net.JoinHostPort(vip, "4242")); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("from the host itself %s said %v", vip, err)
		}
	}
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
