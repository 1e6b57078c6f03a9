package openflow

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// bridge starts an Open vSwitch with a bridge br0.
func bridge(t *testing.T) *netnstest.OVS {
	t.Helper()
	o := netnstest.New(t).OVS()
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	return o
}

// examples are flows of every kind that the gateway writes, with the form in which ovs-ofctl prints
// them.
var examples = []struct {
	flow host.Flow
	dump string
}{
	{"table=0,priority=205,in_port=1,dl_dst=02:42:ac:12:00:03,udp,tp_dst=6081,actions=output:LOCAL",
		"priority=205,udp,in_port=1,dl_dst=02:42:ac:12:00:03,tp_dst=6081 actions=LOCAL"},
	{"table=0,priority=110,in_port=1,tcp,nw_dst=5.5.5.5,tp_dst=80,actions=ct(commit,zone=64000,exec(set_field:0x1->ct_mark)),output:2",
		"priority=110,tcp,in_port=1,nw_dst=5.5.5.5,tp_dst=80 actions=ct(commit,zone=64000,exec(set_field:0x1->ct_mark)),output:2"},
	{"table=0,priority=110,in_port=1,icmp6,icmp_type=135,nd_target=fd55::1,actions=output:LOCAL",
		"priority=110,icmp6,in_port=1,icmp_type=135,nd_target=fd55::1 actions=LOCAL"},
	{"table=0,priority=105,in_port=2,pkt_mark=0x3f0,ip,actions=ct(commit,zone=64000,nat(src=172.18.0.3),exec(set_field:0x1->ct_mark)),output:1",
		"priority=105,pkt_mark=0x3f0,ip,in_port=2 actions=ct(commit,zone=64000,nat(src=172.18.0.3),exec(set_field:0x1->ct_mark)),output:1"},
	{"table=0,priority=104,in_port=2,ipv6,ipv6_src=fd00:10:244::/48,actions=drop",
		"priority=104,ipv6,in_port=2,ipv6_src=fd00:10:244::/48 actions=drop"},
	{"table=0,priority=50,in_port=1,ip,actions=ct(zone=64000,nat,table=1)",
		"priority=50,ip,in_port=1 actions=ct(table=1,zone=64000,nat)"},
	{"table=0,priority=0,actions=NORMAL", "priority=0 actions=NORMAL"},
	{"table=1,priority=100,ct_state=+trk+est,ct_mark=0x1,ip,actions=output:2",
		"table=1, priority=100,ct_state=+est+trk,ct_mark=0x1,ip actions=output:2"},
	{"table=1,priority=14,icmp6,icmp_type=134,actions=FLOOD", "table=1, priority=14,icmp6,icmp_type=134 actions=FLOOD"},
}

func flows() []host.Flow {
	var out []host.Flow
	for _, e := range examples {
		out = append(out, e.flow)
	}
	return out
}

func dumped() string {
	var out []string
	for _, e := range examples {
		out = append(out, fmt.Sprintf("cookie=%#x, %s", Cookie, e.dump))
	}
	return strings.Join(out, "\n")
}

func expect(t *testing.T, what string, o *netnstest.OVS, want string) {
	t.Helper()
	if got := strings.Join(o.Flows("br0"), "\n"); got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestReplace(t *testing.T) {
	o := bridge(t)
	ctx := t.Context()
	mgmt := "unix:" + o.Dir + "/br0.mgmt"
	o.Run("ovs-ofctl", "add-flow", mgmt, "priority=7,arp,actions=drop") // of an earlier run

	w := New("br0", o.Dir)
	must(t, w.Apply(ctx, "base", flows()[3:]))
	must(t, w.Apply(ctx, "a-service", flows()[:3]))
	if got := strings.Join(o.Flows("br0"), "\n"); !strings.Contains(got, "priority=7,arp") {
		t.Errorf("a flow was deleted before Sweep:\n%s", got)
	}
	must(t, w.Apply(ctx, "a-service", flows()[1:3]))
	if got := strings.Join(o.Flows("br0"), "\n"); strings.Contains(got, "6081") || !strings.Contains(got, "5.5.5.5") {
		t.Errorf("what a contributor dropped is still there, or too much is gone:\n%s", got)
	}
	must(t, w.Apply(ctx, "a-service", flows()[:3]))
	must(t, w.Sweep(ctx))
	expect(t, "swept", o, dumped())

	ages := func() string { return o.Run("ovs-ofctl", "dump-flows", mgmt) }
	_, differs, err := w.diff(ctx, render(flows()))
	if err != nil || differs {
		t.Errorf("diff-flows sees a difference where there is none (%v):\n%s", err, ages())
	}

	// Others edit the flows.
	for what, edit := range map[string][]string{
		"a flow added":          {"add-flow", mgmt, "priority=300,actions=drop"},
		"a flow deleted":        {"--strict", "del-flows", mgmt, "priority=0"},
		"all flows deleted":     {"del-flows", mgmt},
		"actions changed":       {"mod-flows", mgmt, "table=1,actions=drop"},
		"a cookie changed":      {"--strict", "add-flow", mgmt, "cookie=0x5,priority=0,actions=NORMAL"},
		"a flow that times out": {"add-flow", mgmt, "priority=0,idle_timeout=60,actions=NORMAL"},
	} {
		o.Run("ovs-ofctl", edit...)
		must(t, w.Resync(ctx))
		expect(t, what, o, dumped())
	}

	// Of contributors with the same match, the first by name wins.
	must(t, w.Apply(ctx, "A", []host.Flow{"table=0,priority=0,actions=drop"}))
	if got := strings.Join(o.Flows("br0"), "\n"); !strings.Contains(got, "priority=0 actions=drop") {
		t.Errorf("the first contributor did not win:\n%s", got)
	}
	must(t, w.Apply(ctx, "A", nil))
	expect(t, "withdrawn", o, dumped())
}

// TestNoWrite: a flow that is not written again keeps its counters and age.
func TestNoWrite(t *testing.T) {
	o := bridge(t)
	ctx := t.Context()
	w := New("br0", o.Dir)
	must(t, w.Apply(ctx, "base", flows()))
	must(t, w.Sweep(ctx))
	changes := watch(t, w)
	must(t, w.Apply(ctx, "base", flows()))
	must(t, w.Resync(ctx))
	must(t, w.Sweep(ctx))
	o.Run("ovs-ofctl", "add-flow", w.target, "priority=300,actions=drop") // a change that is noticed
	<-changes
	select {
	case <-changes:
		t.Error("a no-op pass changed flows")
	default:
	}
}

// watch starts to follow the flow monitor and drops its initial report.
func watch(t *testing.T, w *Writer) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes, ended := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(ended)
		w.Watch(ctx, func() { changes <- struct{}{} })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-changes
	return changes
}

// TestRun: a restart of ovs-vswitchd and edits of others are repaired without a call of the writer.
func TestRun(t *testing.T) {
	o := bridge(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := New("br0", o.Dir)
	must(t, w.Apply(ctx, "base", flows()))
	must(t, w.Sweep(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	repaired := func() bool { return strings.Join(o.Flows("br0"), "\n") == dumped() }

	o.Run("ovs-ofctl", "del-flows", w.target)
	eventually.True(t, "deleted flows", repaired)
	o.StopVswitchd()
	if err := w.Apply(ctx, "base", flows()[1:]); err == nil {
		t.Error("no error while ovs-vswitchd is dead")
	}
	if err := w.Apply(ctx, "base", flows()); err == nil {
		t.Error("no error while ovs-vswitchd is dead")
	}
	o.StartVswitchd()
	eventually.True(t, "flows after a restart", repaired)
	dump, err := w.Dump(ctx)
	if err != nil || strings.Count(dump, "actions=") != len(examples) {
		t.Errorf("dump (%v):\n%s", err, dump)
	}
}

func TestRefused(t *testing.T) {
	w := New("br0", t.TempDir())
	for _, f := range []host.Flow{
		"priority=1,actions=drop\npriority=2,actions=drop", "priority=1", "cookie=0x1,priority=1,actions=drop", "# a comment,actions=",
	} {
		if err := w.Apply(t.Context(), "x", []host.Flow{f}); err == nil || strings.Contains(err.Error(), "ovs-ofctl") {
			t.Errorf("%q was not refused: %v", f, err)
		}
	}
}

// TestNoWriteBeforeSweep adds missing flows once: existing flows are not rewritten, even if there
// are foreign flows on the bridge.
func TestNoWriteBeforeSweep(t *testing.T) {
	o := bridge(t)
	ctx := t.Context()
	mgmt := "unix:" + o.Dir + "/br0.mgmt"
	o.Run("ovs-ofctl", "add-flow", mgmt, "priority=7,arp,actions=drop") // of an earlier run
	w := New("br0", o.Dir)
	must(t, w.Apply(ctx, "a", flows()))
	written := time.Now()
	must(t, w.Resync(ctx))
	must(t, New("br0", o.Dir).Apply(ctx, "a", flows()))
	unwritten := time.Since(written)
	if age := youngest(t, o.Run("ovs-ofctl", "dump-flows", mgmt)); age < unwritten-2*time.Millisecond {
		t.Errorf("a flow is %v old, but nothing was to be written for %v", age, unwritten)
	}
	must(t, w.Apply(ctx, "a", flows()[1:]))
	if got := strings.Join(o.Flows("br0"), "\n"); strings.Contains(got, "priority=205") || !strings.Contains(got, "priority=7") {
		t.Errorf("after one was dropped:\n%s", got)
	}
}

// youngest returns the lowest age of the flows in a dump.
func youngest(t *testing.T, dump string) time.Duration {
	t.Helper()
	least := time.Hour
	for line := range strings.Lines(dump) {
		_, rest, ok := strings.Cut(line, "duration=")
		if !ok {
			continue
		}
		text, _, _ := strings.Cut(rest, ",")
		age, err := time.ParseDuration(text)
		must(t, err)
		least = min(least, age)
	}
	return least
}

// TestPackets counts the packets that all of our flows of one priority match, and no others, for all
// priorities and tables at once.
func TestPackets(t *testing.T) {
	o := bridge(t)
	w := New("br0", o.Dir)
	if blank, err := w.Blank(t.Context()); err != nil || !blank {
		t.Errorf("a new bridge is blank: %v, %v", blank, err)
	}
	err := w.Apply(t.Context(), "a", []host.Flow{
		"table=0,priority=104,ip,nw_src=10.244.0.0/16,actions=drop",
		"table=0,priority=104,ip,nw_src=10.245.0.0/16,actions=drop",
		"table=0,priority=10,ip,actions=drop",
		"table=1,priority=104,ip,actions=drop",
	})
	if err != nil {
		t.Fatal(err)
	}
	if blank, err := w.Blank(t.Context()); err != nil || blank {
		t.Errorf("a bridge with flows of ours is blank: %v, %v", blank, err)
	}
	for _, src := range []string{"0af40105", "0af40106", "0af50001", "c0000201"} {
		packet := "020000000002" + "020000000001" + "0800" + // Ethernet
			"4500001c000000004011" + "0000" + src + "c0000209" + // IPv4
			"0001000200080000" // UDP
		o.Run("ovs-ofctl", "packet-out", "unix:"+o.Dir+"/br0.mgmt", "in_port=controller,packet="+packet+",actions=resubmit(,0)")
	}
	eventually.True(t, "three packets to be counted", func() bool {
		n, err := w.Packets(t.Context())
		return err == nil && n[host.FlowLevel{Priority: 104}] == 3 && n[host.FlowLevel{Priority: 10}] == 1
	})
	o.Run("ovs-ofctl", "add-flow", w.target, "priority=9,ip,actions=drop") // not ours
	want := map[host.FlowLevel]uint64{{Priority: 104}: 3, {Priority: 10}: 1, {Table: 1, Priority: 104}: 0}
	if n, err := w.Packets(t.Context()); err != nil || !maps.Equal(n, want) {
		t.Errorf("packets are %v, want %v (%v)", n, want, err)
	}
}

// TestLearned: learned flows stay when others are replaced, and do not count as a change made by
// somebody else.
func TestLearned(t *testing.T) {
	o := bridge(t)
	ctx := t.Context()
	teacher := host.Flow(fmt.Sprintf("table=0,priority=101,udp,actions=learn(table=4,priority=110,cookie=%#x,idle_timeout=60,limit=10,"+
		"eth_type=0x800,nw_proto=17,NXM_OF_IP_SRC[]=NXM_OF_IP_DST[],OXM_OF_UDP_DST[]=OXM_OF_UDP_SRC[],load:1->NXM_NX_REG0[])", host.LearnedCookie))
	w := New("br0", o.Dir)
	must(t, w.Apply(ctx, "teacher", []host.Flow{teacher}))
	must(t, w.Sweep(ctx))
	learned := func() string {
		var out []string
		for _, f := range o.Flows("br0") {
			if strings.Contains(f, fmt.Sprintf("cookie=%#x", host.LearnedCookie)) {
				out = append(out, f)
			}
		}
		return strings.Join(out, "\n")
	}
	changes := watch(t, w)
	const packet = "020000000002" + "020000000001" + "0800" + // Ethernet
		"4500001c000000004011" + "0000" + "0af40105" + "c0000209" + // IPv4
		"0001000200080000" // UDP
	o.Run("ovs-ofctl", "packet-out", w.target, "in_port=controller,packet="+packet+",actions=resubmit(,0)")
	eventually.True(t, "a flow to be learned", func() bool { return learned() != "" })
	want := learned()
	must(t, w.Resync(ctx))
	must(t, New("br0", o.Dir).Apply(ctx, "teacher", []host.Flow{teacher})) // as after a restart
	o.Run("ovs-ofctl", "add-flow", w.target, "priority=300,actions=drop")  // a change that is noticed
	<-changes
	select {
	case <-changes:
		t.Error("what was learned was taken for a change")
	default:
	}
	must(t, w.Apply(ctx, "a-service", flows()))
	if got := learned(); got != want {
		t.Errorf("flows were replaced, and with them what was learned:\n%s\nwant:\n%s", got, want)
	}
	if got := strings.Join(o.Flows("br0"), "\n"); strings.Contains(got, "priority=300") || !strings.Contains(got, "6081") {
		t.Errorf("the flows of others are not replaced:\n%s", got)
	}
}

// TestChange: flows that are changed one by one appear and disappear, other flows are not compared,
// and the change is not mistaken for one made by somebody else.
func TestChange(t *testing.T) {
	o := bridge(t)
	ctx := t.Context()
	w := New("br0", o.Dir)
	must(t, w.Apply(ctx, "base", flows()[1:]))
	must(t, w.Change(ctx, "base", flows()[1:2], flows()[:1])) // before Sweep: the same as Apply
	if got := strings.Join(o.Flows("br0"), "\n"); !strings.Contains(got, "6081") || strings.Contains(got, "5.5.5.5") {
		t.Errorf("changed before Sweep:\n%s", got)
	}
	must(t, w.Change(ctx, "base", nil, flows()[1:2]))
	must(t, w.Sweep(ctx))
	sorted := func(text string) []string { return slices.Sorted(strings.SplitSeq(text, "\n")) }
	expectSorted := func(what string) {
		t.Helper()
		if got := slices.Sorted(slices.Values(o.Flows("br0"))); !slices.Equal(got, sorted(dumped())) {
			t.Errorf("%s:\n%s", what, strings.Join(got, "\n"))
		}
	}
	expectSorted("swept")

	programs, looks := counted(t), 0
	another := host.Flow("table=0,priority=150,in_port=1,arp,arp_tpa=172.18.0.33,actions=output:LOCAL")
	other := host.Flow("table=0,priority=150,in_port=1,arp,arp_tpa=172.18.0.33,actions=drop")
	has := func(what, text string, want bool) {
		t.Helper()
		looks++
		if got := strings.Join(o.Flows("br0"), "\n"); strings.Contains(got, text) != want {
			t.Errorf("%s:\n%s", what, got)
		}
	}
	must(t, w.Change(ctx, "base", nil, []host.Flow{another}))
	has("added", "arp_tpa=172.18.0.33 actions=LOCAL", true)
	must(t, w.Change(ctx, "base", []host.Flow{another}, []host.Flow{other}))
	has("other actions", "arp_tpa=172.18.0.33 actions=drop", true)
	must(t, w.Change(ctx, "base", nil, []host.Flow{another})) // the first one has the match
	must(t, w.Change(ctx, "base", []host.Flow{other}, nil))
	has("the other is left", "arp_tpa=172.18.0.33 actions=LOCAL", true)
	must(t, w.Change(ctx, "base", []host.Flow{another}, nil))
	has("gone", "172.18.0.33", false)
	if got := programs() - looks; got != 4 {
		t.Errorf("%d programs for four changes of flows", got)
	}
	expectSorted("as before")
	must(t, w.Apply(ctx, "A", []host.Flow{"table=0,priority=0,actions=drop"}))
	must(t, w.Change(ctx, "base", []host.Flow{"table=0,priority=0,actions=NORMAL"}, nil))
	has("what somebody else wants, too", "priority=0 actions=drop", true)
}

// counted makes runs of ovs-ofctl be counted, and returns a function that returns how many there
// were.
func counted(t *testing.T) func() int {
	t.Helper()
	program, err := exec.LookPath("ovs-ofctl")
	must(t, err)
	dir := t.TempDir()
	log := filepath.Join(dir, "runs")
	script := fmt.Sprintf("#!/bin/sh\necho >>%s\nexec %s \"$@\"\n", log, program)
	must(t, os.WriteFile(filepath.Join(dir, "ovs-ofctl"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		text, err := os.ReadFile(log)
		must(t, err)
		return strings.Count(string(text), "\n")
	}
}

// TestOwnChanges: changes of the writer itself wake nobody, changes of others do.
func TestOwnChanges(t *testing.T) {
	o := bridge(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := New("br0", o.Dir)
	must(t, w.Apply(ctx, "base", flows()))
	must(t, w.Sweep(ctx))
	woken, ended := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(ended)
		w.reconnect(ctx, func() error { return w.monitor(ctx, func() { woken <- struct{}{} }, w.own.is) })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	eventually.Receive(t, "the monitor to begin", woken)
	var many []host.Flow
	for i := range 20 {
		many = append(many, host.Flow(fmt.Sprintf("table=0,priority=150,in_port=1,arp,arp_tpa=172.18.0.%d,actions=drop", i)))
	}
	must(t, w.Change(ctx, "base", nil, many))
	must(t, w.Change(ctx, "base", many[5:], nil))
	select {
	case <-woken:
		t.Error("woken by changes of its own")
	case <-time.After(4 * settleTime): // there is no event for nothing happening
	}
	o.Run("ovs-ofctl", "--strict", "del-flows", w.target, "priority=150,in_port=1,arp,arp_tpa=172.18.0.1")
	eventually.Receive(t, "a change that somebody else has made", woken)
}
