package raft

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

func TestParseMembers(t *testing.T) {
	for list, want := range map[string]string{
		"ssl:192.0.2.1:6641":                     "ssl:192.0.2.1:6644",
		"ssl:192.0.2.1:6641,ssl:[fd00::2]:7":     "ssl:192.0.2.1:6644 ssl:[fd00::2]:6644",
		"tcp:[fd00::1]:6641,tcp:[fd00::2]:6641":  "tcp:[fd00::1]:6644 tcp:[fd00::2]:6644",
		"":                                       `"": no member; allowed: ssl:ADDRESS:PORT or tcp:ADDRESS:PORT, separated by commas, IPv6 in brackets`,
		"unix:/run/ovn/ovnnb_db.sock":            `"unix:/run/ovn/ovnnb_db.sock": no member; allowed: ssl:ADDRESS:PORT or tcp:ADDRESS:PORT, separated by commas, IPv6 in brackets`,
		"ssl:db.example:6641":                    `"ssl:db.example:6641": no member; allowed: ssl:ADDRESS:PORT or tcp:ADDRESS:PORT, separated by commas, IPv6 in brackets`,
		"ssl:192.0.2.1:6641, ssl:192.0.2.2:6641": `" ssl:192.0.2.2:6641": no member; allowed: ssl:ADDRESS:PORT or tcp:ADDRESS:PORT, separated by commas, IPv6 in brackets`,
		"ssl:192.0.2.1:6641,tcp:192.0.2.2:6641":  `"tcp:192.0.2.2:6641": tcp beside ssl; allowed: one of them for all members`,
		"ssl:192.0.2.1:6641,ssl:192.0.2.1:6642":  `"ssl:192.0.2.1:6642": address given twice; allowed: one member for each node`,
		"ssl:192.0.2.1":                          `"ssl:192.0.2.1": no member; allowed: ssl:ADDRESS:PORT or tcp:ADDRESS:PORT, separated by commas, IPv6 in brackets`,
	} {
		m, err := ParseMembers(list)
		var got []string
		for _, c := range m.Clients {
			got = append(got, m.endpoint(c.Addr(), northboundPort))
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q: %s, want %s", list, text, want)
		}
	}
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		file         kind
		id, recorded string
		first        bool
		want         action
		wantErr      string
	}{
		{file: absent, first: true, want: create},
		{file: standalone, first: true, want: create},
		{file: absent, want: await},
		{file: standalone, want: await},
		{file: absent, recorded: "a", first: true, want: join}, // its disk was lost: it never creates another one
		{file: absent, recorded: "a", want: join},
		{file: standalone, recorded: "a", want: join},
		{file: clustered, id: "a", recorded: "a", want: nothing},
		{file: clustered, id: "a", recorded: "a", first: true, want: nothing},
		{file: clustered, id: "a", first: true, want: record}, // it ended between creating and recording
		{file: clustered, id: "a", want: record},              // the ConfigMap was lost
		{file: clustered, id: "a", recorded: "b", wantErr: "it belongs to cluster a, but the cluster is b"},
	} {
		got, err := next(c.file, c.id, c.recorded, c.first)
		if got != c.want || fmt.Sprint(err) != cmpError(c.wantErr) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}

func cmpError(text string) string {
	if text == "" {
		return "<nil>"
	}
	return text
}

func TestNotAMember(t *testing.T) {
	m := Member{Address: netip.MustParseAddr("192.0.2.4"), Members: members(t, "ssl:192.0.2.1:6641,ssl:192.0.2.2:6641")}
	err := m.Prepare(t.Context())
	if want := "node address 192.0.2.4 is not among the members 192.0.2.1, 192.0.2.2: the databases run on these nodes only"; err == nil || err.Error() != want {
		t.Error(err)
	}
}

func members(t *testing.T, list string) Members {
	t.Helper()
	m, err := ParseMembers(list)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// cluster is a cluster of three members, each with its own loopback address.
type cluster struct {
	t       *testing.T
	client  *fake.Clientset
	members Members
	dir     string
	port    int
	servers map[int]*exec.Cmd
}

func newCluster(t *testing.T) *cluster {
	port, err := strconv.Atoi(ovsdbtest.FreePort(t))
	if err != nil {
		t.Fatal(err)
	}
	clients := ovsdbtest.FreePort(t)
	c := &cluster{t: t, dir: t.TempDir(), servers: map[int]*exec.Cmd{}, port: port}
	c.members = members(t, fmt.Sprintf("tcp:127.0.0.1:%[1]s,tcp:127.0.0.2:%[1]s,tcp:127.0.0.3:%[1]s", clients))
	c.client = fakeapi.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ovn-kubernetes", Name: "ovn-databases"}})
	return c
}

func (c *cluster) database(i int) Database {
	dir := filepath.Join(c.dir, fmt.Sprint(i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	db := Databases(dir, dir)[0]
	db.Port = c.port
	return db
}

func (c *cluster) member(i int) Member {
	return Member{Database: c.database(i), Address: c.members.Clients[i].Addr(), Members: c.members, Registry: ConfigMap{Client: c.client, Namespace: "ovn-kubernetes", Name: "ovn-databases"}}
}

// begin creates the given number of members.
func (c *cluster) begin(n int) {
	c.t.Helper()
	for i := range n {
		c.prepare(i)
		c.serve(i)
	}
}

// prepare creates the file of a member.
func (c *cluster) prepare(i int) {
	c.t.Helper()
	if err := c.member(i).Prepare(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// serve runs the server of a member, and waits until it has joined the cluster.
func (c *cluster) serve(i int) {
	c.t.Helper()
	db := c.database(i)
	cmd := exec.Command("ovsdb-server", "-vconsole:off", "-vsyslog:off", "-vfile:off", "--remote=p"+db.Socket,
		fmt.Sprintf("--remote=ptcp:%d:%s", c.members.Clients[i].Port(), c.members.Clients[i].Addr()), "--unixctl="+db.Control, db.File)
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.servers[i] = cmd
	c.t.Cleanup(func() { c.kill(i) })
	eventually.Succeeds(c.t, fmt.Sprintf("member %d to be connected", i), func() error {
		_, err := run(c.t.Context(), "ovsdb-client", "--timeout=10", "wait", db.Socket, db.Schema, "connected")
		return err
	})
}

func (c *cluster) kill(i int) {
	if cmd := c.servers[i]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(c.servers, i)
	}
}

// loseDisk deletes all data of a member.
func (c *cluster) loseDisk(i int) {
	c.t.Helper()
	c.kill(i)
	if err := os.RemoveAll(filepath.Join(c.dir, fmt.Sprint(i))); err != nil {
		c.t.Fatal(err)
	}
}

// ask runs ovn-nbctl against a member.
func (c *cluster) ask(i int, args ...string) string {
	c.t.Helper()
	out, err := run(c.t.Context(), append([]string{"ovn-nbctl", "--timeout=60", "--no-leader-only", "--db=" + c.database(i).Socket}, args...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// count waits until a member knows of that many members.
func (c *cluster) count(i, want int) {
	c.t.Helper()
	db := c.database(i)
	eventually.Succeeds(c.t, fmt.Sprintf("member %d to know of %d", i, want), func() error {
		text, err := run(c.t.Context(), "ovs-appctl", "-t", db.Control, "cluster/status", db.Schema)
		if got := len(parseStatus(text).servers); err != nil || got != want {
			return fmt.Errorf("%d: %w: %s", got, err, text)
		}
		return nil
	})
}

func (c *cluster) id() string {
	c.t.Helper()
	m, err := c.client.CoreV1().ConfigMaps("ovn-kubernetes").Get(c.t.Context(), "ovn-databases", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return m.Data["nb"]
}

// TestLostDisks creates a cluster and loses the disk of each member in turn, including the first one's: the cluster
// continues with its data, and with three members.
func TestLostDisks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.begin(3)
	id := c.id()
	c.ask(1, "ls-add", "kept")
	for i := range 3 {
		c.loseDisk(i)
		c.prepare(i)
		c.serve(i)
		c.count(i, 4)
		eventually.Succeeds(t, "the cluster to accept the removal", func() error { return c.member(i).once(t.Context(), new(int)) })
		c.count(i, 3)
		if got := c.ask(i, "--bare", "--columns=name", "list", "Logical_Switch"); got != "kept" {
			t.Errorf("member %d has %q", i, got)
		}
	}
	if got := c.id(); got != id {
		t.Errorf("cluster %s, was %s", got, id)
	}
	// Any two are a majority.
	for i := range 3 {
		c.kill(i)
		c.ask((i+1)%3, "ls-add", fmt.Sprint("without", i))
		c.serve(i)
	}
}

// TestFromStandalone creates a cluster from a standalone server's database.
func TestFromStandalone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for i := range 2 { // the other member's database does not matter
		db := c.database(i)
		if _, err := tool(t.Context(), "create", db.File, db.SchemaFile); err != nil {
			t.Fatal(err)
		}
		c.serve(i)
		c.ask(i, "ls-add", fmt.Sprint("of", i))
		c.kill(i)
	}
	c.begin(3)
	for i := range 3 {
		if got := c.ask(i, "--bare", "--columns=name", "list", "Logical_Switch"); got != "of0" {
			t.Errorf("member %d has %q", i, got)
		}
	}
	if _, err := os.Stat(c.database(1).File + ".standalone"); err != nil {
		t.Error(err)
	}
}

// refuseOnce refuses the first request.
func refuseOnce() clienttesting.ReactionFunc {
	refused := false
	return func(clienttesting.Action) (bool, runtime.Object, error) {
		if refused {
			return false, nil, nil
		}
		refused = true
		return true, nil, errors.New("try again")
	}
}

// TestStandaloneInUse: the member waits for the standalone server to end, so that what that wrote last is kept.
func TestStandaloneInUse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	db := c.database(0)
	if _, err := tool(t.Context(), "create", db.File, db.SchemaFile); err != nil {
		t.Fatal(err)
	}
	c.serve(0)
	m, refused := c.member(0), make(chan struct{}, 100)
	m.Registry = told{m.Registry, refused}
	done := make(chan error, 1)
	go func() { done <- m.Prepare(t.Context()) }()
	<-refused // it has tried twice, so it was refused in between
	<-refused
	c.ask(0, "ls-add", "late")
	c.kill(0)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	c.serve(0)
	if got := c.ask(0, "--bare", "--columns=name", "list", "Logical_Switch"); got != "late" {
		t.Errorf("it has %q", got)
	}
}

// told signals when it is asked.
type told struct {
	Registry
	asked chan struct{}
}

func (r told) ID(ctx context.Context, database string) (string, error) {
	r.asked <- struct{}{}
	return r.Registry.ID(ctx, database)
}

// TestPrepareAgain: the first member ends between any two steps.
func TestPrepareAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.client.PrependReactor("update", "configmaps", refuseOnce())
	c.prepare(0) // its record is refused at first
	id := c.id()
	if err := os.WriteFile(c.database(0).File+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.prepare(0)
	if got := c.id(); got != id || id == "" {
		t.Errorf("cluster %q, was %q", got, id)
	}
	c.serve(0)
	c.loseDisk(1)
	if err := os.WriteFile(c.database(1).File+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.prepare(1)
	c.serve(1)
	c.count(1, 2)
}

// TestEmptyFile: a loss of power leaves an empty file of one that was not written to the disk yet. It has nothing that could
// be lost: the first member creates the cluster, and others join it.
func TestEmptyFile(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for i := range 2 {
		if err := os.WriteFile(c.database(i).File, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		c.prepare(i)
		c.serve(i)
		if _, err := os.Stat(c.database(i).File + ".standalone"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("member %d keeps a file without content: %v", i, err)
		}
	}
	c.count(1, 2)
	c.kill(1)
	if err := os.WriteFile(c.database(1).File, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	absent := absentChecks
	if err := c.member(1).once(t.Context(), &absent); err == nil || !strings.Contains(err.Error(), "joins its cluster again when its pod is deleted") {
		t.Errorf("while its server cannot start: %v", err)
	}
}

// TestWaitsForTheFirst: a member waits, and ends when told to.
func TestWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.member(1).Prepare(ctx) }()
	c.prepare(0)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	go func() { done <- newCluster(t).member(2).Prepare(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestForeignFile: a file of another cluster is kept.
func TestForeignFile(t *testing.T) {
	t.Parallel()
	c, other := newCluster(t), newCluster(t)
	c.prepare(0)
	other.prepare(0)
	db, m := other.database(0), c.member(0)
	m.Database = db
	err := m.Prepare(t.Context())
	want := fmt.Sprintf("database file %s: it belongs to cluster %s, but the cluster is %s; move the file away to join that", db.File, other.id(), c.id())
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestUpgrade: the leader converts the database to a newer schema, and no other member does.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.begin(2)
	text, err := os.ReadFile(c.database(0).SchemaFile)
	if err != nil {
		t.Fatal(err)
	}
	version, err := tool(t.Context(), "schema-version", c.database(0).SchemaFile)
	if err != nil {
		t.Fatal(err)
	}
	version = strings.TrimSpace(version)
	for _, step := range []struct{ installed, want string }{{"99.0.0", "99.0.0"}, {"1.0.0", "99.0.0"}, {version, "99.0.0"}} {
		file := filepath.Join(c.dir, "schema")
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), version, step.installed, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually.Succeeds(t, "the version", func() error { // either may lead, and a follower learns of it later
			for i := 1; i >= 0; i-- {
				m := c.member(i)
				m.Database.SchemaFile = file
				if err := m.once(t.Context(), new(int)); err != nil {
					return err
				}
			}
			db := c.database(0)
			got, err := run(t.Context(), "ovsdb-client", "get-schema-version", "--no-leader-only", db.Socket, db.Schema)
			if err == nil && strings.TrimSpace(got) != step.want {
				err = fmt.Errorf("installed %s: %s, want %s", step.installed, got, step.want)
			}
			return err
		})
	}
}

func TestFailed(t *testing.T) {
	for _, c := range []struct {
		status string
		err    error
		want   bool
	}{
		{status: "Name: OVN_Northbound\nStatus: cluster member\nRole: leader\n"},
		{status: "Name: OVN_Northbound\nStatus: disconnected from the cluster (election timeout)\n"},
		{status: "Name: OVN_Northbound\nStatus: failed\nRole: leader\n", want: true},
		{err: errors.New("ovs-appctl cluster/status OVN_Northbound: exit status 2: unknown cluster"), want: true},
		{err: errors.New("ovs-appctl: cannot connect to ovnnb_db.ctl (Connection refused)")}, // it has ended
	} {
		if got := failed(c.status, c.err); got != c.want {
			t.Errorf("%q, %v: %t", c.status, c.err, got)
		}
	}
}

// TestFullDisk fills the disk of the leader, whose server then leaves the cluster for good. The member is back once
// there is room, and the server has been ended and started again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for i := range 3 {
		dir := filepath.Dir(c.database(i).File)
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
	}
	c.begin(3)
	leader := c.leader()
	db := c.database(leader)
	full := filepath.Join(filepath.Dir(db.File), "full")
	if err := os.WriteFile(full, make([]byte, 3<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	// More than what is left of the last block of the file.
	c.ask((leader+1)%3, "ls-add", "large", "--", "set", "Logical_Switch", "large", "external_ids:large="+strings.Repeat("x", 8<<10))
	eventually.Succeeds(t, "the server to leave the cluster", func() error {
		if out, err := run(t.Context(), "ovs-appctl", "-t", db.Control, "cluster/status", db.Schema); !failed(out, err) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err := c.member(leader).once(t.Context(), new(int)); err == nil || !strings.Contains(err.Error(), "there is no room") {
		t.Fatalf("while the disk is full: %v", err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if err := c.member(leader).once(t.Context(), new(int)); err != nil {
		t.Fatal(err)
	}
	if err := c.servers[leader].Wait(); err != nil {
		t.Fatal(err)
	}
	c.serve(leader)
	c.count(leader, 3)
	if got := c.ask(leader, "--bare", "--columns=name", "list", "Logical_Switch"); got != "large" {
		t.Errorf("it has %q", got)
	}
}

// TestUnreadableFile takes an entry out of a member's file, as ovsdb-server does when the disk of a follower is full: the
// server cannot start with such a file. The member joins the cluster anew.
func TestUnreadableFile(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.begin(3)
	for _, name := range []string{"a", "b", "c"} {
		c.ask(2, "ls-add", name)
	}
	c.kill(2)
	db := c.database(2)
	text, err := os.ReadFile(db.File)
	if err != nil {
		t.Fatal(err)
	}
	records := strings.SplitAfter(string(text), "\nOVSDB CLUSTER ")
	for i, r := range records {
		if strings.Contains(r, `"name":"b"`) {
			records = slices.Delete(records, i, i+1)
			break
		}
	}
	if err := os.WriteFile(db.File, []byte(strings.Join(records, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	absent := 0 // the server was killed, so its control socket is there
	for range absentChecks {
		if _, err := os.Stat(db.File + ".unreadable"); err == nil {
			t.Error("the file was replaced at once, although the server may be about to start")
		}
		if err := c.member(2).once(t.Context(), &absent); err == nil {
			t.Error("a server that does not answer is no error")
		}
	}
	c.serve(2)
	c.count(2, 4)
	eventually.Succeeds(t, "the cluster to accept the removal", func() error { return c.member(2).once(t.Context(), &absent) })
	c.count(2, 3)
	if got := c.ask(2, "--bare", "--columns=name", "list", "Logical_Switch"); len(strings.Fields(got)) != 3 {
		t.Errorf("it has %q", got)
	}
}

// TestServerIsDown leaves a file alone whose server does not run, and one whose server has just started.
func TestServerIsDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.begin(2)
	absent := absentChecks
	db := c.database(1)
	if err := os.Rename(db.Control, db.Control+".away"); err != nil {
		t.Fatal(err)
	}
	for _, running := range []bool{true, false} {
		if !running {
			c.kill(1)
		}
		if err := c.member(1).once(t.Context(), &absent); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(db.File + ".unreadable"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("server runs: %t: the file was replaced (%v)", running, err)
		}
	}
}
