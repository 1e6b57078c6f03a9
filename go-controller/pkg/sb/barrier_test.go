package sb

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// barrierLab is a barrier between real databases; the test plays the roles of northd and the ovn-controllers.
type barrierLab struct {
	t      *testing.T
	nb, sb *ovsdbtest.Server
	*Barrier
	*nbovsdb.Writer

	mu    sync.Mutex
	bumps int
}

// Bump implements Counter.
func (l *barrierLab) Bump(ctx context.Context, beyond int) (int, error) {
	l.mu.Lock()
	l.bumps++
	l.mu.Unlock()
	return l.Writer.Bump(ctx, beyond)
}

func newBarrierLab(t *testing.T, chassis ...string) *barrierLab {
	t.Helper()
	l := &barrierLab{t: t, nb: ovsdbtest.StartNB(t), sb: ovsdbtest.StartSB(t)}
	for _, c := range chassis {
		sbctl(t, l.sb, "create", "Chassis_Private", "name="+c)
	}
	client, err := nbovsdb.Connect(t.Context(), nbovsdb.Config{Address: l.nb.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	l.Writer = nbovsdb.NewWriter(client)
	l.Barrier = NewBarrier(nbovsdb.Config{Address: l.sb.Socket()}, l)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return l
}

// cfg returns nb_cfg of the northbound database.
func (l *barrierLab) cfg() int {
	l.t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(l.nb.Nbctl("--bare", "--columns=nb_cfg", "list", "NB_Global")))
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// raised waits until nb_cfg is at least n.
func (l *barrierLab) raised(n int) {
	l.t.Helper()
	eventually.Succeeds(l.t, "nb_cfg to be raised", func() error {
		if got := l.cfg(); got < n {
			return fmt.Errorf("it is %d, not %d", got, n)
		}
		return nil
	})
}

// confirm does what an ovn-controller does.
func (l *barrierLab) confirm(chassis string, n int) {
	l.t.Helper()
	sbctl(l.t, l.sb, "set", "Chassis_Private", chassis, fmt.Sprintf("nb_cfg=%d", n))
}

// wait starts waiting for a chassis.
func (l *barrierLab) wait(ctx context.Context, chassis string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.Wait(ctx, chassis) }()
	return done
}

func (l *barrierLab) passes(what string, done <-chan error) {
	l.t.Helper()
	if err := eventually.Receive(l.t, what, done); err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
}

// passesWith makes a chassis confirm every requested value until a wait is over.
func (l *barrierLab) passesWith(chassis, what string, done <-chan error) {
	l.t.Helper()
	eventually.Succeeds(l.t, what, func() error {
		select {
		case err := <-done:
			return err
		default:
			l.confirm(chassis, l.cfg())
			return errors.New("it waits")
		}
	})
}

// TestBarrierOfANewDatabase: what a chassis confirmed for a northbound database that was lost does not count for
// its replacement.
func TestBarrierOfANewDatabase(t *testing.T) {
	l := newBarrierLab(t)
	sbctl(t, l.sb, "create", "Chassis_Private", "name=c1", "nb_cfg=5000")
	eventually.True(t, "the chassis to be known", func() bool { done, _ := l.of("c1"); return done == 5000 })
	waits := l.wait(t.Context(), "c1")
	l.raised(1)
	select {
	case err := <-waits:
		t.Fatalf("passed by a word about another database: %v", err)
	case <-time.After(10 * pace):
	}
	if got := l.cfg(); got != 5001 {
		t.Errorf("nb_cfg is %d", got)
	}
	l.confirm("c1", 5001)
	l.passes("the word about this one", waits)
}

func TestBarrier(t *testing.T) {
	l := newBarrierLab(t, "c1", "c2", "c3", "dead")
	ctx, cancel := context.WithCancel(t.Context())
	stuck := l.wait(ctx, "dead")
	waits := l.wait(t.Context(), "c1")
	l.raised(1)
	l.passesWith("c2", "another chassis", l.wait(t.Context(), "c2"))
	select {
	case err := <-waits:
		t.Fatalf("passed before the chassis said so: %v", err)
	default:
	}
	// A dead chassis does not delay others.
	l.passesWith("c1", "the chassis that confirmed", waits)

	// Later requests need a later confirmation.
	before := l.cfg()
	waits = l.wait(t.Context(), "c3")
	l.raised(before + 1)
	l.confirm("c3", before)
	select {
	case err := <-waits:
		t.Fatalf("passed by an earlier word: %v", err)
	case <-time.After(10 * pace):
	}
	l.passesWith("c3", "the later word", waits)

	cancel()
	if err := <-stuck; !errors.Is(err, context.Canceled) {
		t.Errorf("the dead one: %v", err)
	}
}

// TestBarrierIsShared: concurrent waiters share a raise.
func TestBarrierIsShared(t *testing.T) {
	l := newBarrierLab(t, "c1")
	const waiters = 1000
	var all []<-chan error
	for range waiters {
		all = append(all, l.wait(t.Context(), "c1"))
	}
	for _, done := range all {
		l.passesWith("c1", "one of many", done)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bumps > waiters/10 {
		t.Errorf("%d raises for %d waiters", l.bumps, waiters)
	}
}

// TestBarrierOutlivesItsDatabases: waits continue when connections are restored, and a chassis that is added later
// is seen.
func TestBarrierOutlivesItsDatabases(t *testing.T) {
	l := newBarrierLab(t, "c0")
	l.passesWith("c0", "a first chassis", l.wait(t.Context(), "c0"))
	late := l.wait(t.Context(), "c1")
	l.raised(2)
	l.sb.Kill()
	l.sb.Start()
	sbctl(t, l.sb, "create", "Chassis_Private", "name=c1", fmt.Sprintf("nb_cfg=%d", l.cfg()))
	l.passes("the late chassis", late)
	l.nb.Kill()
	l.nb.Start()
	again := l.wait(t.Context(), "c1")
	l.raised(3)
	l.passesWith("c1", "after the northbound database came back", again)
}

// TestBarrierOfAChassisThatRegistersAgain: the row of a chassis is replaced by one of the same name, and the library
// tells of the old and of the new one in any order.
func TestBarrierOfAChassisThatRegistersAgain(t *testing.T) {
	l := newBarrierLab(t, "c1", "later")
	eventually.Receive(t, "the initial progress", l.confirmed)
	for n := 1; n <= 10; n++ {
		sbctl(t, l.sb, "destroy", "Chassis_Private", "c1", "--", "create", "Chassis_Private", "name=c1", fmt.Sprintf("nb_cfg=%d", n))
		l.confirm("later", n)
		eventually.True(t, "a later change", func() bool { done, _ := l.of("later"); return done == n })
		if done, _ := l.of("c1"); done != n {
			t.Fatalf("the chassis, which registered again, is at %d, not %d", done, n)
		}
	}
	sbctl(t, l.sb, "destroy", "Chassis_Private", "c1")
	eventually.True(t, "the chassis to be forgotten", func() bool { done, _ := l.of("c1"); return done == 0 })
}

// TestWritten: what was waited for in vain is found later.
func TestWritten(t *testing.T) {
	l := newBarrierLab(t, "c1")
	for n := 1; n <= 3; n++ {
		written := l.inVain("c1")
		l.raised(n)
		eventually.Succeeds(t, "what was confirmed meanwhile", func() error {
			l.confirm("c1", l.cfg())
			return written(over(t), "c1") // which waits for nothing that is written later
		})
	}
}

// TestWrittenToLostDatabases: if both databases were replaced by empty ones, chassis begin again to count.
func TestWrittenToLostDatabases(t *testing.T) {
	l := newBarrierLab(t, "c1")
	var written func(context.Context, string) error
	for n := 1; n <= 3; n++ {
		written = l.inVain("c1")
		l.raised(n)
	}
	l.nb.Nbctl("set", "NB_Global", ".", "nb_cfg=0")
	done := make(chan error, 1)
	go func() { done <- written(t.Context(), "c1") }()
	l.raised(1)
	l.passesWith("c1", "the new databases", done)
	if got := l.cfg(); got >= 3 {
		t.Errorf("nb_cfg is %d", got)
	}
}

// TestContinuedWithoutAnIncrement: a wait that is continued does not make ovn-northd and the chassis report again.
func TestContinuedWithoutAnIncrement(t *testing.T) {
	l := newBarrierLab(t, "c1")
	written := l.inVain("c1")
	l.raised(1)
	eventually.Succeeds(t, "the target to be known", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.bumps == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	for range 3 {
		limited, cancel := context.WithTimeout(t.Context(), 10*pace)
		if err := written(limited, "c1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nothing is confirmed: %v", err)
		}
		cancel()
	}
	if got := l.cfg(); got != 1 {
		t.Errorf("nb_cfg is %d", got)
	}
	l.confirm("c1", 1)
	if err := written(t.Context(), "c1"); err != nil {
		t.Error(err)
	}
}

// TestCounted: waiting for rows that increment nb_cfg themselves increments nothing, also if other rows were written
// afterwards and another chassis has already confirmed the value.
func TestCounted(t *testing.T) {
	l := newBarrierLab(t, "fast", "slow")
	l.nb.Nbctl("init")
	l.nb.Nbctl("lr-add", "gr")
	l.passesWith("fast", "the first increment, which tells the counter from one of another database", l.wait(t.Context(), "fast"))
	write := func(id string, priority int) {
		t.Helper()
		rows := []nb.Row{{
			ID: id, Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: "gr"},
			Model: &nbdb.LogicalRouterPolicy{Priority: priority, Match: "1", Action: nbdb.LogicalRouterPolicyActionDrop},
		}}
		if _, err := l.Apply(t.Context(), nb.Owner{Feature: "f", Object: id}, rows); err != nil {
			t.Fatal(err)
		}
	}
	before := l.cfg()
	write("a", topology.PriorityEgressIP)
	write("b", 1)
	value := l.cfg()
	if value != before+1 {
		t.Errorf("nb_cfg is %d after %d", value, before)
	}
	l.confirm("fast", value)
	eventually.True(t, "the fast one to be seen", func() bool { done, _ := l.of("fast"); return done == value })
	counted := l.Counted()
	if err := counted(over(t), "slow"); !errors.Is(err, context.Canceled) {
		t.Errorf("the slow one has confirmed nothing: %v", err)
	}
	if got := l.cfg(); got != value {
		t.Fatalf("nb_cfg is %d, was %d", got, value)
	}
	l.confirm("slow", value)
	if err := counted(t.Context(), "slow"); err != nil {
		t.Error(err)
	}
	if got := l.cfg(); got != value {
		t.Errorf("nb_cfg is %d, was %d", got, value)
	}
}

// inVain waits for a chassis in vain, and returns how to continue.
func (l *barrierLab) inVain(chassis string) func(ctx context.Context, chassis string) error {
	l.t.Helper()
	written := l.Written()
	if err := written(over(l.t), chassis); !errors.Is(err, context.Canceled) {
		l.t.Fatalf("nothing is confirmed: %v", err)
	}
	return written
}

// over returns a context that has ended.
func over(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
