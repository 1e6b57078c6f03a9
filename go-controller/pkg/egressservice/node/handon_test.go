package node

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/routed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// led is what the master does when the pods are led to the host.
func led(status metav1.ConditionStatus) func(*v1.EgressServiceStatus) {
	return func(s *v1.EgressServiceStatus) {
		s.Conditions = []metav1.Condition{{Type: v1.ConditionProgrammed, Status: status}}
	}
}

// TestHandOn: a node that takes over hands packets on to the previous host, from the moment at which it can
// translate itself until half a minute after the pods are led to it, or until it is not the host any more. The previous one
// hands them on to the next one from when that one has its rules, and for longer than it does in return.
func TestHandOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.linger = Linger
		w.start()
		expectNow := func(what string, n int) {
			t.Helper()
			synctest.Wait()
			got := w.dump()
			if strings.Count(got, "-j TEE --gateway 172.18.0.3\n") != n || strings.Count(got, "-j TEE --gateway fc00::3\n") != n || strings.Count(got, "-j TEE") != 2*n {
				t.Errorf("%s: want %d rules for each family\n%s", what, n, got)
			}
			if n > 0 && strings.Count(got, "-A OVN-KUBE-STRAY -d ") != 2 {
				t.Errorf("%s: packets that the other host does not know either are forwarded\n%s", what, got)
			}
		}
		expect := func(what string, n int) {
			t.Helper()
			fakeapi.Settle()
			expectNow(what, n)
		}
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker2" })
		w.eventually("the translations", func() bool { return rules(w) == 4 })
		expect("without a previous host", 0)
		w.setStatus(programmedBy("ovn-worker", true))
		expect("served by another node", 0)
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker2"; led(metav1.ConditionFalse)(s) })
		expect("while the pods are led to that node", 1)
		if host := w.status().Programmed.Host; host != "ovn-worker2" {
			t.Errorf("%s has acknowledged", host)
		}
		<-time.After(handOnTime)
		expect("as long as they are", 1)
		w.setStatus(led(metav1.ConditionTrue))
		<-time.After(handOnTime - time.Second)
		expectNow("shortly after", 1)
		<-time.After(2 * time.Second)
		expectNow("in the end", 0)
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker" })
		expect("while the next host has to prepare", 0)
		w.setStatus(programmedBy("ovn-worker", false))
		expect("while the pods are led to the next host", 1)
		w.setStatus(programmedBy("ovn-worker", true))
		<-time.After(handOnTime + w.linger - time.Second)
		expectNow("longer than the next host does", 1)
		<-time.After(2 * time.Second)
		expectNow("in the end", 0)
		w.setStatus(programmedBy("ovn-worker", false))
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker2" })
		expect("the next time", 1)
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "" })
		expect("without a host", 0)
		w.setStatus(programmedBy("ovn-control-plane", false))
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker2" })
		expect("after a node on another network", 0)
		w.setStatus(programmedBy("ovn-worker", false))
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker2" })
		expect("the last time", 1)
		if err := w.egress.EgressServiceV1().EgressServices("default").Delete(t.Context(), "demo-svc", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("deleted", 0)
	})
}

// TestHandOnRefused: a kernel that cannot copy packets does not keep a node from being the host.
func TestHandOnRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		var refused atomic.Int32
		w.chains.Fail = func(contributor string) error {
			if strings.HasSuffix(contributor, "~hand-on") && refused.Add(1) == 1 {
				return errors.New("no such target")
			}
			return nil
		}
		w.setStatus(programmedBy("ovn-worker", false))
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker2" })
		w.eventually("the word", func() bool { return w.status().Programmed.Host == "ovn-worker2" })
		fakeapi.Settle()
		if refused.Load() != 2 || strings.Contains(w.dump(), "TEE") {
			t.Errorf("%d writes, want a refused one and another without copies\n%s", refused.Load(), w.dump())
		}
		again := func() {
			w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = ""; s.Programmed = nil })
			fakeapi.Settle()
			w.setStatus(programmedBy("ovn-worker", false))
			w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker2" })
			fakeapi.Settle()
		}
		before := refused.Load()
		if again(); refused.Load() != before+2 || strings.Contains(w.dump(), "TEE") { // withdrawn, and strays again
			t.Errorf("%d more writes, want none with copies\n%s", refused.Load()-before, w.dump())
		}
		<-time.After(host.OptionalRetry)
		if again(); !strings.Contains(w.dump(), "TEE") {
			t.Errorf("not tried again\n%s", w.dump())
		}
	})
}

// TestHandOnWithdrawn: rules whose write failed are withdrawn if they are not wanted any more: the writer knows them, and
// would write them together with others.
func TestHandOnWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		const contributor = "egressservice/default/demo-svc~hand-on"
		var locked atomic.Bool
		w.chains.Fail = func(of string) error {
			if locked.Load() && of == contributor {
				return errors.New("the table is locked")
			}
			return nil
		}
		locked.Store(true)
		w.setStatus(programmedBy("ovn-worker", false))
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker2" })
		w.eventually("an attempt", func() bool { return w.chains.called(contributor) > 0 })
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "" })
		fakeapi.Settle()
		calls := w.chains.called(contributor)
		locked.Store(false)
		w.eventually("the withdrawal", func() bool { return w.chains.called(contributor) > calls })
		fakeapi.Settle()
		if calls = w.chains.called(contributor); strings.Contains(w.dump(), "TEE") {
			t.Errorf("rules are left\n%s", w.dump())
		}
		w.setStatus(programmedBy("ovn-control-plane", true))
		if fakeapi.Settle(); w.chains.called(contributor) != calls {
			t.Error("written again without a reason")
		}
	})
}

// TestHandOnPackets: packets of a connection that the kernel does not know reach the previous host, but those of known ones
// do not, nor those that have been handed on.
func TestHandOnPackets(t *testing.T) {
	ns := netnstest.New(t)
	ends := routed.New(t, ns) // the previous host is at the pods' end
	chains, err := iptables.New(egressservice.Chains(topology.Families))
	if err != nil {
		t.Fatal(err)
	}
	addrs := func(list ...string) (all []netip.Addr) {
		for _, a := range list {
			all = append(all, netip.MustParseAddr(a))
		}
		return all
	}
	pods, vips := addrs("10.244.1.6", "fd00:10:244:2::6"), addrs("5.5.5.5", "2001:db8:5::5")
	given := egressservice.Translations{pods[0]: vips[0], pods[1]: vips[1]}
	want := egressservice.HandOnRules(given.Addresses(), addrs("10.244.1.3", "fd00:10:244:2::3"))
	if err := errors.Join(chains.Apply(t.Context(), "web", given.Rules("default/web")), chains.Apply(t.Context(), "web~hand-on", want),
		chains.Apply(t.Context(), "shared~hand-on", want)); err != nil {
		t.Fatal(err)
	}
	assertRendered(t, ns, want)
	for i, server := range []string{"192.0.2.9", "2001:db8::9"} {
		bits := map[bool]string{true: "/32", false: "/128"}[i == 0]
		ns.Run("ip", "route", "add", vips[i].String()+bits, "via", server)
		ends.AddPod(pods[i].String() + bits)
		ends.AddPod(vips[i].String() + bits)
		s, pod := ends.Listen(ends.Outside, server, 0), ends.Listen(ends.Pods, pods[i].String(), 0)
		port := pod.LocalAddr().(*net.UDPAddr).Port
		vip, other := ends.Listen(ends.Pods, vips[i].String(), port), ends.Listen(ends.Pods, vips[i].String(), 0)

		ends.Send(pod, "question", s.LocalAddr())
		if got, from := ends.Receive(s); got != "question" || from != vips[i].String() {
			t.Errorf("%q came from %s", got, from)
		}
		ends.Send(s, "answer", vip.LocalAddr()) // at the previous host, this would reach vip
		if got, from := ends.Receive(pod); got != "answer" || from != server {
			t.Errorf("the pod got %q from %s", got, from)
		}
		setTTL(t, s, 7)
		ends.Send(s, "handed on before", vip.LocalAddr())
		ends.Send(s, "handed on before", other.LocalAddr())
		setTTL(t, s, 64)
		ends.Send(s, "unknown", other.LocalAddr())
		ends.Send(s, "next", other.LocalAddr())
		if got, from := ends.Receive(other); got != "unknown" || from != server {
			t.Errorf("the previous host got %q from %s", got, from)
		}
		if got, _ := ends.Receive(other); got != "next" {
			t.Errorf("then the previous host got %q, although EgressServices that share an address need one copy", got)
		}
		if err := vip.SetReadDeadline(time.Now()); err != nil {
			t.Fatal(err)
		}
		if n, err := vip.Read(make([]byte, 64)); !timedOut(err) {
			t.Errorf("the previous host got %d bytes of the known connection, or %v", n, err)
		}
	}
}

func setTTL(t *testing.T, conn *net.UDPConn, ttl int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	level, option := unix.IPPROTO_IP, unix.IP_TTL
	if netip.MustParseAddrPort(conn.LocalAddr().String()).Addr().Unmap().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, ttl) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}
