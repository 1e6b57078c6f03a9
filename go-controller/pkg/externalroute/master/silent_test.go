package master

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// TestSilentSessions: a session that stays down is restarted, less and less often, and one that comes up is left alone.
func TestSilentSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nb := fake()
		w := newWorld(t, nb, node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.51", "172.18.0.52")))
		w.start()
		w.reported("p")
		defer w.stop()
		after := func(d time.Duration, want ...string) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			got := nb.RestartedBFD()
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("restarted are %v, want %v", got, want)
			}
		}
		const one, two = "172.18.0.51", "172.18.0.52"
		after(time.Minute) // no status yet
		nb.Report(one, nbdb.BFDStatusDown)
		nb.Report(two, nbdb.BFDStatusInit)
		after(restartWait - time.Second)
		nb.Report(two, nbdb.BFDStatusUp)
		after(time.Second+time.Millisecond, one)
		after(2*restartWait, one, one)
		nb.Report(one, nbdb.BFDStatusUp)
		after(time.Hour, one, one)
		nb.Report(one, nbdb.BFDStatusDown)
		<-time.After(time.Hour)
		if n := len(nb.RestartedBFD()); n != 2+11 {
			t.Errorf("restarted %d times", n)
		}
	})
}

// TestSessionsReportedLate: a session that is up is not restarted because a pass of ovn-northd takes long.
func TestSessionsReportedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nb := fake()
		w := newWorld(t, nb, node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.51")))
		var say func()
		w.barrier, say = slow("chassis0")
		w.start()
		w.reported("p")
		defer w.stop()
		nb.Report("172.18.0.51", nbdb.BFDStatusDown)
		<-time.After(restartWait + 2*time.Second)
		nb.Report("172.18.0.51", nbdb.BFDStatusUp)
		say()
		<-time.After(time.Hour)
		if got := nb.RestartedBFD(); len(got) > 0 {
			t.Errorf("restarted are %v", got)
		}
	})
}

// TestSlowTimers: nor is one whose timers are so long that it takes half a minute to come up.
func TestSlowTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nb := fake()
		next := hops("172.18.0.51")
		next.Static[0].BFD = &v1.BFDTimers{MinTx: new(int32(10000))}
		w := newWorld(t, nb, node(0), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, next))
		w.start()
		w.reported("p")
		defer w.stop()
		nb.Report("172.18.0.51", nbdb.BFDStatusDown)
		<-time.After(30 * time.Second)
		nb.Report("172.18.0.51", nbdb.BFDStatusUp)
		<-time.After(time.Hour)
		if got := nb.RestartedBFD(); len(got) > 0 {
			t.Errorf("restarted are %v", got)
		}
	})
}
