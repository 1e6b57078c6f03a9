package app

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// leadership is when this process was last known to lead.
type leadership struct{ at atomic.Pointer[time.Time] }

func (l *leadership) confirmed(at time.Time) { l.at.Store(&at) }

// within reports whether this process is known to have led within a time that has just passed. The monotonic clock does not count
// the time for which the machine is suspended, so the wall clock has to agree.
func (l *leadership) within(d time.Duration) bool {
	at, now := l.at.Load(), time.Now()
	return at != nil && now.Sub(*at) < d && now.Round(0).Sub(at.Round(0)) < d
}

// fenced returns the environment of a master that leads with an identity: its clients write nothing unless the lease was
// confirmed so recently that nobody else can have it. A leader that was suspended, and has been replaced meanwhile, would otherwise
// write what it had decided before it notices. The northbound database has a fence of its own.
func fenced(env *Env, identity string) (*Env, error) {
	ha := env.Config.MasterHA
	// A leader gives up if it has failed to renew the lease for the renew deadline, after the pause of the last renewal: nobody else gets it
	// any earlier than this after a confirmation. If the lease is short, this is at least twice the interval of watchLease, so that not every write asks.
	valid := max(ha.LeaseDuration-ha.RenewDeadline-ha.RetryPeriod, 2*lookInterval)
	f := &fence{led: &env.leader, valid: valid, limit: ha.RenewDeadline,
		confirm: func(ctx context.Context) error { return confirmLeader(ctx, env, identity) }}
	web := *env.HTTP
	web.Transport = fencedTransport{env.HTTP.Transport, f}
	client, err := kubeClient(env.REST, &web)
	if err != nil {
		return nil, err
	}
	return &Env{Config: env.Config, Kube: client, REST: env.REST, HTTP: &web, APIServers: env.APIServers, Ready: env.Ready, Metrics: env.Metrics, Audit: env.Audit}, nil
}

// fence is shared by all clients of a master.
type fence struct {
	led     *leadership
	valid   time.Duration // how long a confirmation is relied upon
	limit   time.Duration // of a request for one
	confirm func(context.Context) error
	asking  singleflight.Group
}

// check returns an error if it is not certain that this process leads.
func (f *fence) check(ctx context.Context) error {
	for range 2 {
		if f.led.within(f.valid) {
			return nil
		}
		// The answer to an earlier question may have waited as long as this process did: it does not count then.
		answer := f.asking.DoChan("", func() (any, error) {
			ctx, cancel := context.WithTimeout(context.Background(), f.limit)
			defer cancel()
			return nil, f.confirm(ctx)
		})
		select {
		case said := <-answer:
			if said.Err != nil {
				return fmt.Errorf("write nothing, since this may not be the leader any more: %w", said.Err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.led.within(f.valid) {
		return nil
	}
	return fmt.Errorf("write nothing, since the API server took more than %s to confirm that this is the leader", f.valid)
}

// fencedTransport is the transport of a fenced client.
type fencedTransport struct {
	next  http.RoundTripper
	fence *fence
}

func (t fencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		if err := t.fence.check(r.Context()); err != nil {
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
