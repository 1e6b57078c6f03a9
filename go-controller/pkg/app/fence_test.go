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
	f.Config.MasterHA.RenewDeadline, f.Config.MasterHA.LeaseDuration = time.Minute, 2*time.Minute
	f.HTTP = server.Client()
	var err error
	if f.Kube, err = kubeClient(f.REST, f.HTTP); err != nil {
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
		asked     int32
		writes    bool
	}{
		"confirmed a moment ago": {ago(0), "other", 0, true},
		"still the leader":       {ago(time.Hour), "self", 1, true},
		"never confirmed":        {nil, "self", 1, true},
		"replaced":               {ago(time.Hour), "other", 1, false},
		"unknown":                {ago(time.Hour), "", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFenceTest(t)
			f.holder.Store(c.holder)
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
			if !c.writes {
				return
			}
			if err := f.write(t, leading); err != nil || f.asked.Load() != c.asked {
				t.Errorf("the next write: %v, asked %d times", err, f.asked.Load())
			}
		})
	}
}

// TestFenceOldAnswer: an answer to a question that was asked too long ago does not count.
func TestFenceOldAnswer(t *testing.T) {
	led, asked := &leadership{}, 0
	f := &fence{led: led, valid: time.Minute, limit: time.Minute, confirm: func(context.Context) error {
		asked++
		led.confirmed(time.Now().Add(-time.Hour))
		return nil
	}}
	if err := f.check(t.Context()); err == nil || asked != 2 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// TestFenceEndsWithTheRequest: a write does not wait for an answer about the lease any longer than its own context allows.
func TestFenceEndsWithTheRequest(t *testing.T) {
	asked := make(chan struct{})
	never := make(chan struct{})
	defer close(never)
	f := &fence{led: &leadership{}, valid: time.Hour, limit: time.Hour, confirm: func(context.Context) error {
		close(asked)
		<-never
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if err := f.check(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("checked: %v", err)
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
	if err := confirmLeader(context.Background(), f.Env, "self"); !errors.Is(err, errLostLease) || f.leader.within(time.Hour) {
		t.Errorf("confirmed: %v", err)
	}
}
