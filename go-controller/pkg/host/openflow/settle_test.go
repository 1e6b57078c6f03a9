package openflow

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestSettle: after Settle, the datapath has nothing left of flows that were replaced, although it caches
// a flow for each address that was asked for and ovs-vswitchd hardly gets the time to revalidate them.
func TestSettle(t *testing.T) {
	const addresses = 50
	ns := netnstest.New(t)
	o := ns.OVS()
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev",
		"--", "add-port", "br0", "in", "--", "set", "interface", "in", "type=internal", "ofport_request=1",
		"--", "add-port", "br0", "out", "--", "set", "interface", "out", "type=internal", "ofport_request=2")
	ns.Run("ip", "link", "set", "in", "up")
	ns.Run("ip", "link", "set", "out", "up")
	w := New("br0", o.Dir)
	send := requests(t, ns, "in", addresses)
	ask := host.Flow("table=0,priority=151,in_port=1,arp,reg2=0/0x4,actions=load:0x1->NXM_NX_REG2[2],move:NXM_OF_ARP_TPA[]->NXM_NX_REG1[],resubmit(,5),resubmit(,0)")
	passing := func() (n int) {
		for flow := range strings.Lines(o.Run("ovs-appctl", "dpctl/dump-flows", "--names")) {
			if strings.Contains(flow, "eth_type(0x0806)") && strings.Contains(flow, "actions:out") {
				n++
			}
		}
		return n
	}
	relieve := slowRevalidation(t, o)
	must(t, w.Apply(t.Context(), "answers", []host.Flow{ask, "table=0,priority=1,in_port=1,arp,actions=output:2", "table=5,priority=1,reg1=0x1,actions=drop"}))
	send()
	eventually.True(t, "flows for all requests in the datapath", func() bool { return passing() == addresses })
	must(t, w.Apply(t.Context(), "answers", []host.Flow{ask, "table=0,priority=1,in_port=1,arp,actions=drop", "table=5,priority=1,reg1=0x1,actions=drop"}))
	// Settle would have returned long before, if it did not wait.
	defer time.AfterFunc(5*time.Second, relieve).Stop()
	eventually.True(t, "the flows to take effect", func() bool { return w.Settle(t.Context()) == nil })
	if n := passing(); n > 0 {
		t.Fatalf("%d flows of the datapath let requests pass", n)
	}
}

// TestSettleUnnoticed: ovs-vswitchd has flows before it notices that others were replaced by them. Revalidations that begin in
// between do not count.
func TestSettleUnnoticed(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "ovs-vswitchd.pid"), []byte("1\n"), 0o600))
	listener, err := net.Listen("unix", filepath.Join(dir, "ovs-vswitchd.1.ctl"))
	must(t, err)
	defer listener.Close()
	var clean atomic.Bool
	go func() {
		noticed, current := false, false // current: the revalidation that ends next began after it was noticed
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			var request map[string]any
			if err := json.NewDecoder(conn).Decode(&request); err != nil {
				t.Error(err)
			}
			clean.Store(current) // this one ends, and the next one begins
			current, noticed = noticed, true
			_, _ = conn.Write([]byte(`{"id":0,"result":"","error":null}`))
			_ = conn.Close()
		}
	}()
	w := New("br0", dir)
	w.anew = false // there is nothing to write
	must(t, w.Settle(t.Context()))
	if !clean.Load() {
		t.Error("the datapath may have flows from before")
	}
}

// slowRevalidation gives the threads of ovs-vswitchd that revalidate flows only the idle time of one
// processor, which does not idle until relieve is called.
func slowRevalidation(t *testing.T, o *netnstest.OVS) (relieve func()) {
	t.Helper()
	var one unix.CPUSet
	one.Set(0)
	pid, err := os.ReadFile(filepath.Join(o.Dir, "ovs-vswitchd.pid"))
	must(t, err)
	names, err := filepath.Glob("/proc/" + strings.TrimSpace(string(pid)) + "/task/*/comm")
	must(t, err)
	var all unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &all))
	var slowed []int
	for _, name := range names {
		if comm, err := os.ReadFile(name); err != nil || !strings.HasPrefix(string(comm), "revalidator") {
			continue
		}
		tid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		must(t, err)
		must(t, unix.SchedSetaffinity(tid, &one))
		must(t, unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0))
		slowed = append(slowed, tid)
	}
	if len(slowed) == 0 {
		t.Fatal("ovs-vswitchd has no thread that revalidates flows")
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
		}
		for ctx.Err() == nil {
		}
	}()
	return func() {
		cancel()
		for _, tid := range slowed { // other programs may be busy, too; a thread that is gone needs nothing
			_ = unix.SchedSetaffinity(tid, &all)
			_ = unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
		}
	}
}

// requests returns a function that sends an ARP request for each of many addresses on a link.
func requests(t *testing.T, ns *netnstest.NS, link string, addresses int) func() {
	t.Helper()
	const arp = 0x0806
	fd := -1
	var err error
	<-ns.Go(func() {
		var i *net.Interface
		if i, err = net.InterfaceByName(link); err != nil {
			return
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0, Ifindex: i.Index})
		}
	})
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() {
		for n := range addresses {
			frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, arp >> 8, arp & 0xff},
				0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0)
			frame = binary.BigEndian.AppendUint32(frame, 0x0a010000+uint32(n))
			if _, err := unix.Write(fd, frame); err != nil {
				t.Error(fmt.Errorf("send: %w", err))
			}
		}
	}
}
