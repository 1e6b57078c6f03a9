package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// fenceTest is a leader and an API server that counts the requests.
type fenceTest struct {
	*Env
	holder       atomic.Value // who has the lease; "": the API server does not say
	slow         time.Duration
	asked, wrote atomic.Int32
}

func newFenceTest(t *testing.T) *fenceTest {
	t.Helper()
	f := &fenceTest{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(r.URL.Path, "/leases/"):
			f.asked.Add(1)
			<-time.After(f.slow)
			holder := f.holder.Load().(string)
			if holder == "" {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			fmt.Fprintf(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"x"},"spec":{"holderIdentity":%q}}`, holder)
		case r.Method == http.MethodGet:
			fmt.Fprint(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"}}`)
		default:
			f.wrote.Add(1)
			fmt.Fprint(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"}}`)
		}
	}))
	t.Cleanup(server.Close)
	f.Env = testEnv(nil)
	f.REST = &rest.Config{Host: server.URL}
	f.Config.MasterHA.RenewDeadline = time.Minute
	var err error
	if f.Kube, err = kubeClient(f.REST); err != nil {
		t.Fatal(err)
	}
	return f
}

// write writes as the leader with the identity "self".
func (f *fenceTest) write(t *testing.T, leading *Env) error {
	t.Helper()
	_, err := leading.Kube.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	return err
}

// TestFence: a master that has not confirmed its lease for a while asks before it writes, and writes nothing if another master leads,
// or if that is unknown. It asks once, and not about what it reads.
func TestFence(t *testing.T) {
	ago := func(d time.Duration) *time.Time { at := time.Now().Add(-d); return &at }
	for name, c := range map[string]struct {
		confirmed *time.Time
		holder    string
		slow      time.Duration
		asked     int32
		writes    bool
	}{
		"confirmed a moment ago":      {ago(0), "other", 0, 0, true},
		"still the leader":            {ago(time.Hour), "self", 0, 1, true},
		"never confirmed":             {nil, "self", 0, 1, true},
		"replaced":                    {ago(time.Hour), "other", 0, 1, false},
		"unknown":                     {ago(time.Hour), "", 0, 1, false},
		"confirmed, but too long ago": {ago(time.Hour), "self", 300 * time.Millisecond, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFenceTest(t)
			f.holder.Store(c.holder)
			if f.slow = c.slow; c.slow > 0 {
				was := confirmedFor
				confirmedFor = c.slow / 2
				t.Cleanup(func() { confirmedFor = was })
			}
			f.leader.at.Store(c.confirmed)
			leading, err := fenced(f.Env, "self")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := leading.Kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil || f.asked.Load() > 0 {
				t.Errorf("reading: %v, asked %d times", err, f.asked.Load())
			}
			err = f.write(t, leading)
			if wrote := f.wrote.Load() > 0; wrote != c.writes || (err == nil) != c.writes || (c.holder == "other" && !c.writes) != errors.Is(err, errLostLease) {
				t.Errorf("wrote: %t, %v", wrote, err)
			}
			if got := f.asked.Load(); got != c.asked {
				t.Errorf("asked %d times, want %d", got, c.asked)
			}
			if !c.writes || c.slow > 0 {
				return
			}
			if err := f.write(t, leading); err != nil || f.asked.Load() != c.asked {
				t.Errorf("the next write: %v, asked %d times", err, f.asked.Load())
			}
		})
	}
}

// TestFenceIsOfTheLeader: others, such as the node of the same process, write whoever leads.
func TestFenceIsOfTheLeader(t *testing.T) {
	f := newFenceTest(t)
	f.holder.Store("other")
	if _, err := fenced(f.Env, "self"); err != nil {
		t.Fatal(err)
	}
	if err := f.write(t, f.Env); err != nil || f.wrote.Load() != 1 {
		t.Errorf("wrote %d times, %v", f.wrote.Load(), err)
	}
	if err := confirmLeader(context.Background(), f.Env, "self"); !errors.Is(err, errLostLease) || f.leader.recent() {
		t.Errorf("confirmed: %v", err)
	}
}
