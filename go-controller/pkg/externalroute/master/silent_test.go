package master

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// TestSilentSessions: a session that stays down is begun again, less and less often, and one that comes up is left alone.
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
				t.Fatalf("begun again are %v, want %v", got, want)
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
			t.Errorf("begun again %d times", n)
		}
	})
}
