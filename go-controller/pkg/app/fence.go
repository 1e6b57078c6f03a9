package app

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/client-go/rest"
)

// confirmedFor is how long a confirmation that this process leads is relied upon. A leader confirms it every second anyway.
var confirmedFor = 2 * lookInterval // shortened by tests

// leadership is when this process was last known to lead.
type leadership struct{ at atomic.Pointer[time.Time] }

func (l *leadership) confirmed(at time.Time) { l.at.Store(&at) }

// recent reports whether this process is known to have led a moment ago. The monotonic clock does not count the time for which the
// machine is suspended, so the wall clock has to agree.
func (l *leadership) recent() bool {
	at, now := l.at.Load(), time.Now()
	return at != nil && now.Sub(*at) < confirmedFor && now.Round(0).Sub(at.Round(0)) < confirmedFor
}

// fenced returns the environment of a master that leads with an identity: its clients write nothing unless the lease has been
// confirmed a moment ago. A leader that was suspended, and has been replaced meanwhile, would otherwise write what it had
// decided before it notices. The northbound database has a fence of its own.
func fenced(env *Env, identity string) (*Env, error) {
	f := &fence{led: &env.leader, limit: env.Config.MasterHA.RenewDeadline,
		confirm: func(ctx context.Context) error { return confirmLeader(ctx, env, identity) }}
	rc := rest.CopyConfig(env.REST)
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return fencedTransport{next, f} })
	client, err := kubeClient(rc)
	if err != nil {
		return nil, err
	}
	return &Env{Config: env.Config, Kube: client, REST: rc, Ready: env.Ready, Metrics: env.Metrics, Audit: env.Audit}, nil
}

// fence is shared by all clients of a master.
type fence struct {
	led     *leadership
	limit   time.Duration
	confirm func(context.Context) error
	asking  singleflight.Group
}

// check returns an error if it is not certain that this process leads.
func (f *fence) check() error {
	for range 2 {
		if f.led.recent() {
			return nil
		}
		// The answer to an earlier question may have waited as long as this process did: it does not count then.
		_, err, _ := f.asking.Do("", func() (any, error) {
			ctx, cancel := context.WithTimeout(context.Background(), f.limit)
			defer cancel()
			return nil, f.confirm(ctx)
		})
		if err != nil {
			return fmt.Errorf("write nothing, since this may not be the leader any more: %w", err)
		}
	}
	if f.led.recent() {
		return nil
	}
	return fmt.Errorf("write nothing, since the API server took more than %s to confirm that this is the leader", confirmedFor)
}

// fencedTransport is the transport of a fenced client.
type fencedTransport struct {
	next  http.RoundTripper
	fence *fence
}

func (t fencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		if err := t.fence.check(); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // as a transport has to
			}
			return nil, err
		}
	}
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper returns the wrapped round tripper, for callers that need its connections.
func (t fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
