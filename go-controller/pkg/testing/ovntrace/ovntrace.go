package ovntrace

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// OVN is a running control plane.
type OVN struct {
	t      testing.TB
	NB, SB *ovsdbtest.Server
	traced revision // the databases at the last trace
}

// revision is the number of transactions in each database, in the northbound database without those of Sync and
// ovn-northd.
type revision struct{ nb, sb int }

// Start runs the databases and ovn-northd until the test ends.
func Start(t testing.TB, opts ...ovsdbtest.Option) *OVN {
	t.Helper()
	o := &OVN{t: t, NB: ovsdbtest.StartNB(t, opts...), SB: ovsdbtest.StartSB(t)}
	dir, err := os.MkdirTemp("", "northd")
	if err != nil {
		t.Fatalf("make directory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var log bytes.Buffer
	cmd := exec.Command("ovn-northd", "-vconsole:warn", "-vsyslog:off", "-vfile:off",
		"--unixctl="+filepath.Join(dir, "ctl"), "--ovnnb-db="+o.NB.Socket(), "--ovnsb-db="+o.SB.Socket())
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start ovn-northd: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("ovn-northd said:\n%s", log.String())
		}
	})
	o.Sync()
	return o
}

// Sync waits until northd has turned all northbound rows into logical flows.
func (o *OVN) Sync() {
	o.t.Helper()
	o.NB.Nbctl("--wait=sb", "sync")
}

// Sbctl runs ovn-sbctl and returns its output.
func (o *OVN) Sbctl(args ...string) string {
	o.t.Helper()
	return o.run("ovn-sbctl", append([]string{"--db=" + o.SB.Socket(), "--timeout=30"}, args...)...)
}

// Chassis registers a chassis, as ovn-controller would, so that gateway routers and ports can be bound to it.
func (o *OVN) Chassis(name, encapIP string) {
	o.t.Helper()
	o.Sbctl("--may-exist", "chassis-add", name, "geneve", encapIP)
}

// Bind claims a logical port for a chassis, as ovn-controller would, once northd has created its port binding.
func (o *OVN) Bind(port, chassis string) {
	o.t.Helper()
	o.Sync()
	o.Sbctl("--may-exist", "lsp-bind", port, chassis)
}

// Trace returns ovn-trace's output for a packet that enters datapath (a switch or router): microflow is an OVN
// match with the packet's fields, such as `inport == "ns_pod" && eth.src == ... && ip4.dst == 8.8.8.8 && ip.ttl ==
// 64`. It calls Sync first unless nothing has changed since the trace before. More arguments, e.g. "--ct=new", may
// follow.
//
// A daemon (ovn-trace --detach) would read the databases only once, but it does not begin again with the first --ct at
// each trace.
func (o *OVN) Trace(datapath, microflow string, options ...string) string {
	o.t.Helper()
	if before := o.revision(); before != o.traced {
		o.Sync()
		o.traced = o.revision()
		if o.traced.nb != before.nb {
			o.traced = revision{} // ovn-northd may not have read what somebody has written meanwhile
		}
	}
	args := append([]string{"--db=" + o.SB.Socket()}, options...)
	return o.run("ovn-trace", append(args, datapath, microflow)...)
}

func (o *OVN) revision() revision {
	journal := o.NB.Journal()
	ours := strings.Count(journal, `"_comment":"ovn-northd"}`) + strings.Count(journal, `--wait=sb sync"}`)
	return revision{nb: strings.Count(journal, "\nOVSDB JSON ") - ours, sb: o.SB.Records()}
}

func (o *OVN) run(command string, args ...string) string {
	o.t.Helper()
	cmd := exec.Command(command, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		o.t.Fatalf("%v: %v: %s", cmd.Args, err, stderr.String())
	}
	return string(out)
}
