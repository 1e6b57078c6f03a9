package raft

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestLead checks that a client of the leader socket reaches the leader, whoever that is, and so does the active
// ovn-northd: when the leader dies, when it is frozen, and when the local member is down.
func TestLead(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.begin(3)
	m := c.member(0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Lead(ctx, nil) }()
	socket := "unix:" + m.Database.LeaderSocket
	sb := filepath.Join(c.dir, "sb")
	if _, err := tool(t.Context(), "create", sb, "/usr/share/ovn/ovn-sb.ovsschema"); err != nil {
		t.Fatal(err)
	}
	c.start("ovsdb-server", "--remote=punix:"+sb+".sock", sb)
	c.start("ovn-northd", "--ovnnb-db="+socket, "--ovnsb-db=unix:"+sb+".sock")
	for _, step := range []struct {
		name string
		do   func(leader int)
		undo func(leader int)
	}{
		{"nothing", func(int) {}, func(int) {}},
		{"killed", c.kill, c.serve},
		{"stopped", func(i int) { c.signal(i, syscall.SIGSTOP) }, func(i int) { c.signal(i, syscall.SIGCONT) }},
		{"without the member beside it", func(int) { c.kill(0) }, func(int) { c.serve(0) }},
	} {
		leader := c.leader()
		step.do(leader)
		eventually.Succeeds(t, step.name+": a change to reach the southbound database", func() error {
			_, err := run(t.Context(), "ovn-nbctl", "--timeout=10", "--db="+socket, "--wait=sb", "sync")
			return err
		})
		step.undo(leader)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNextLead: a process that ends after the next one has started, as when its pod was deleted without grace, leaves that
// one its socket.
func TestNextLead(t *testing.T) {
	t.Parallel()
	m := newCluster(t).member(0)
	inode := func() (fs.FileInfo, error) { return os.Stat(m.Database.LeaderSocket) }
	start := func(before fs.FileInfo) (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Lead(ctx, nil) }()
		eventually.Succeeds(t, "the socket", func() error {
			now, err := inode()
			if err == nil && before != nil && os.SameFile(before, now) {
				err = errors.New("it is that of before")
			}
			return err
		})
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	end := start(nil)
	first, err := inode()
	if err != nil {
		t.Fatal(err)
	}
	endNext := start(first)
	end()
	c, err := net.Dial("unix", m.Database.LeaderSocket)
	if err != nil {
		t.Errorf("after the end of the former process: %v", err)
	} else {
		c.Close()
	}
	endNext()
}

// start runs an OVN program until the test ends.
func (c *cluster) start(program string, args ...string) {
	c.t.Helper()
	cmd := exec.Command(program, append([]string{"-vconsole:off", "-vsyslog:off", "-vfile:off", "--unixctl=" + filepath.Join(c.dir, program+".ctl")}, args...)...)
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func (c *cluster) signal(i int, s syscall.Signal) {
	c.t.Helper()
	if err := c.servers[i].Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// leader waits for a member that leads.
func (c *cluster) leader() (leader int) {
	c.t.Helper()
	eventually.Succeeds(c.t, "a leader", func() error {
		for i := range c.servers {
			db := c.database(i)
			text, err := run(c.t.Context(), "ovs-appctl", "--timeout=2", "-t", db.Control, "cluster/status", db.Schema)
			if err == nil && strings.Contains(text, "Role: leader") {
				leader = i
				return nil
			}
		}
		return fmt.Errorf("none of %d leads", len(c.servers))
	})
	return leader
}
