package ovsdb_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// Environment variables of a process that writes like a leader (TestPausedWriters).
const (
	envDatabase = "FENCE_TEST_DATABASE"
	envLeader   = "FENCE_TEST_LEADER"
	envName     = "FENCE_TEST_NAME"
)

func TestMain(m *testing.M) {
	if os.Getenv(envName) != "" {
		os.Exit(writeAsLeader(os.Getenv(envDatabase), os.Getenv(envLeader), os.Getenv(envName)))
	}
	os.Exit(m.Run())
}

// election holds the name of the leader.
type election struct {
	leader  atomic.Value
	refused atomic.Pointer[func()] // called when somebody who does not lead is about to be refused
}

func (e *election) fence(name string) *ovsdb.Fence {
	return &ovsdb.Fence{Writer: name, Confirm: func(context.Context) error {
		if l := e.leader.Load(); l != name {
			if f := e.refused.Load(); f != nil {
				(*f)()
			}
			return fmt.Errorf("%v leads, not %s", l, name)
		}
		return nil
	}}
}

// untilRefused returns a context that ends after somebody was refused: clients try again
// until their context ends. A client asks a second time when it has noted the first answer.
func (e *election) untilRefused(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	var asked atomic.Int32
	refused := func() {
		if asked.Add(1) == 2 {
			cancel()
		}
	}
	e.refused.Store(&refused)
	return ctx
}

func TestFormerWriterIsRefused(t *testing.T) {
	for _, blank := range []bool{false, true} {
		t.Run(fmt.Sprintf("blank=%t", blank), func(t *testing.T) {
			start := ovsdbtest.StartNB
			if blank {
				start = ovsdbtest.StartBlankNB
			}
			s, e := start(t), &election{}
			e.leader.Store("a")
			a := connect(t, ovsdb.Config{Address: s.Socket(), Fence: e.fence("a")})
			apply(t, a, network, router("a"))

			e.leader.Store("b")
			b := connect(t, ovsdb.Config{Address: s.Socket(), Fence: e.fence("b")})
			records := s.Records()
			if _, err := a.Apply(e.untilRefused(t), network, []nb.Row{router("late")}); err == nil || !strings.Contains(err.Error(), "b leads, not a") {
				t.Errorf("late Apply: %v", err)
			}
			if err := a.SetGlobal(e.untilRefused(t), "late", map[string]string{"late": "true"}, nil); err == nil {
				t.Error("late SetGlobal went through")
			}
			if _, err := a.Bump(e.untilRefused(t), 0); err == nil {
				t.Error("late Bump went through")
			}
			if n := s.Records(); n != records {
				t.Errorf("the former writer wrote %d transactions", n-records)
			}
			apply(t, b, network, router("b"))
			if err := b.SetGlobal(t.Context(), "b", nil, nil); err != nil {
				t.Error(err)
			}
			if n, err := b.Bump(t.Context(), 0); err != nil || n < 1 {
				t.Errorf("Bump: %d, %v", n, err)
			}
			if list := s.Nbctl("lr-list"); !strings.Contains(list, "(b)") || strings.Contains(list, "(late)") {
				t.Errorf("routers are\n%s", list)
			}
		})
	}
}

// TestLaterClaimStays pauses a leader between the confirmation that it leads and its claim,
// while the next leader claims and writes.
func TestLaterClaimStays(t *testing.T) {
	s, e := ovsdbtest.StartNB(t), &election{}
	e.leader.Store("a")
	fence, confirmed, goOn := e.fence("a"), make(chan struct{}), make(chan struct{})
	confirm := fence.Confirm
	fence.Confirm = func(ctx context.Context) error {
		err := confirm(ctx)
		if err == nil {
			close(confirmed)
			<-goOn
		}
		return err
	}
	refused := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		c, err := ovsdb.Connect(ctx, ovsdb.Config{Address: s.Socket(), Fence: fence})
		if err == nil {
			c.Close()
		}
		refused <- err
	}()
	<-confirmed
	e.leader.Store("b")
	b := connect(t, ovsdb.Config{Address: s.Socket(), Fence: e.fence("b")})
	apply(t, b, network, router("b"))
	close(goOn)
	apply(t, b, network, router("b"), router("c"))
	cancel()
	if err := <-refused; err == nil {
		t.Error("the former leader has connected")
	}
	if ids := s.Nbctl("get", "NB_Global", ".", "external_ids"); !strings.Contains(ids, `writer"=b`) {
		t.Errorf("external_ids are %s", ids)
	}
}

// TestClaimIsWrittenOnce: a writer that reconnects finds its name and does not call
// Confirm. If the name was lost, it claims the database again.
func TestClaimIsWrittenOnce(t *testing.T) {
	s, e := ovsdbtest.StartNB(t), &election{}
	e.leader.Store("a")
	s.Nbctl("set", "NB_Global", ".", "external_ids:theirs=kept")
	w := connect(t, ovsdb.Config{Address: s.Socket(), Fence: e.fence("a")})
	apply(t, w, network, router("a"))
	records := s.Records()
	fence := e.fence("a")
	fence.Confirm = func(context.Context) error { return errors.New("there are no other nodes to ask") }
	again := connect(t, ovsdb.Config{Address: s.Socket(), Fence: fence})
	apply(t, again, network, router("a"))
	if n := s.Records(); n != records {
		t.Errorf("a restart wrote %d transactions", n-records)
	}
	if ids := s.Nbctl("get", "NB_Global", ".", "external_ids"); !strings.Contains(ids, "theirs=kept") {
		t.Errorf("external_ids are %s", ids)
	}
	for what, lose := range map[string][]string{
		"the name": {"remove", "NB_Global", ".", "external_ids", `"k8s.ovn.org/writer"`},
		"the row":  {"destroy", "NB_Global", ".", "--", "create", "NB_Global", "name=new"},
	} {
		s.Nbctl(lose...)
		apply(t, w, network, router("a"), router("without-"+strings.Fields(what)[1]))
	}
}

// writeAsLeader writes its name until another process is the leader, and prints it after the first write.
func writeAsLeader(database, leaderFile, name string) int {
	leads := func(context.Context) error {
		if content, err := os.ReadFile(leaderFile); err != nil || string(content) != name {
			return fmt.Errorf("%s leads, not %s: %w", content, name, err)
		}
		return nil
	}
	ctx := context.Background()
	c, err := ovsdb.Connect(ctx, ovsdb.Config{Address: database, Fence: &ovsdb.Fence{Writer: name, Confirm: leads}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	w := ovsdb.NewWriter(c)
	var first sync.Once
	for i := 0; ; i++ {
		rows := []nb.Row{{ID: "set", Model: &nbdb.AddressSet{Name: "set", Addresses: []string{fmt.Sprintf("writer-%s-%d", name, i)}}}}
		limited, cancel := context.WithTimeout(ctx, time.Second)
		_, err := w.Apply(limited, svc, rows)
		cancel()
		if err == nil {
			first.Do(func() { fmt.Println(name) })
		} else if leads(ctx) != nil {
			return 0
		}
	}
}

const pauses = 100

// TestPausedWriters stops a constantly writing process at a random moment, lets the next
// one lead, and resumes the former once the new leader has written.
func TestPausedWriters(t *testing.T) {
	seeds.Each(t, 1, pauseWriters)
}

func pauseWriters(t *testing.T, rng *rand.Rand) {
	s := ovsdbtest.StartNB(t)
	leader := filepath.Join(t.TempDir(), "leader")
	written := regexp.MustCompile(`writer-(\d+)-\d+`)
	start := func(n int) *exec.Cmd {
		name := fmt.Sprintf("%03d", n) // the journal has the old value and the new one, sorted
		next := leader + ".next"
		if err := os.WriteFile(next, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, leader); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envDatabase+"="+s.Socket(), envLeader+"="+leader, envName+"="+name)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		wrote := make(chan string, 1)
		go func() {
			line, _ := bufio.NewReader(out).ReadString('\n')
			wrote <- line
		}()
		if got := eventually.Receive(t, "the first write of "+name, wrote); got != name+"\n" {
			t.Fatalf("%s printed %q instead of its name", name, got)
		}
		return cmd
	}
	s.Nbctl("create", "Address_Set", "name=set", `external_ids={"k8s.ovn.org/owner-controller"=ovnkube,`+
		`"k8s.ovn.org/owner-type"=egressservice,"k8s.ovn.org/name"="ns/svc","k8s.ovn.org/id"=set}`)
	cmd := start(0)
	for n := 1; n <= pauses; n++ {
		<-time.After(time.Duration(rng.IntN(int(5 * time.Millisecond)))) // a random moment
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		next := start(n)
		_ = cmd.Process.Signal(syscall.SIGCONT)
		cmd = next
	}
	order := []int{}
	for _, m := range written.FindAllStringSubmatch(s.Journal(), -1) {
		n, _ := strconv.Atoi(m[1])
		if len(order) > 0 && order[len(order)-1] > n {
			t.Errorf("%d wrote after %d", n, order[len(order)-1])
		}
		order = append(order, n)
	}
	if len(order) < 2*pauses || order[len(order)-1] != pauses {
		t.Errorf("only %d writes, or not the last leader's at the end", len(order))
	}
}
