package page

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// view is what was known of a cluster at some time. It is immutable.
type view struct {
	facts    Facts
	cluster  *explain.Cluster
	status   explain.Status
	timeline []Entry
	outage   string // see Status
}

// cache keeps the last view.
type cache struct {
	config Config
	flight singleflight.Group

	mu       sync.Mutex
	view     *view
	tried    time.Time // when it was last read, or should have been
	failing  time.Time // since when reading has been failing
	observed observations
}

// get returns a view that is recent enough, and reads the cluster if needed. Concurrent requests share one read.
// Once the API server does not answer, it returns the last view, with a note, and does not wait, unless nobody has asked for a
// while: only the time of a read is limited.
func (c *cache) get(ctx context.Context) (*view, error) {
	if v := c.fresh(); v != nil {
		return v, nil
	}
	read := c.flight.DoChan("", func() (any, error) {
		if v := c.fresh(); v != nil {
			return v, nil
		}
		var v *view
		err := panics.Catch("egress page", func() (err error) {
			v, err = c.read(context.WithoutCancel(ctx))
			return err
		})
		return v, err
	})
	if v := c.outage(); v != nil {
		return v, nil
	}
	select {
	case r := <-read:
		v, _ := r.Val.(*view)
		return v, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *cache) fresh() *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view == nil || c.config.Now().Sub(c.tried) >= c.config.MaxAge {
		return nil
	}
	return c.view
}

// recent is how long after an attempt to read the cluster its failure says something about the present: longer than an attempt
// may take.
const recent = time.Minute

// outage returns the last view if reading has been failing until now.
func (c *cache) outage() *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failing.IsZero() || c.config.Now().Sub(c.tried) >= recent {
		return nil
	}
	return c.view
}

// read reads the cluster; it is not called concurrently.
func (c *cache) read(ctx context.Context) (*view, error) {
	facts, failed := c.config.Read(ctx)
	now := c.config.Now()
	c.mu.Lock()
	last, failing := c.view, c.failing
	c.mu.Unlock()
	outage := ""
	switch {
	case failed != nil && last == nil:
		return nil, failed
	case failed != nil && !failing.IsZero(): // the note is already there
		c.keep(last, now, failing)
		return last, nil
	case failed != nil:
		failing = now
		facts = last.facts
		outage = fmt.Sprintf("the API server cannot be queried since %s (%v): this is what it said before", now.UTC().Format(time.RFC3339), failed)
		facts.Snapshot.Notes = append(slices.Clone(facts.Snapshot.Notes), outage)
	default:
		failing = time.Time{}
	}
	cluster, err := explain.New(facts.Snapshot)
	if err != nil {
		return nil, err
	}
	v := &view{facts: facts, cluster: cluster, status: cluster.Status(), outage: outage}
	if failed == nil {
		c.observed.see(cluster.Objects(explain.ObjectFilter{}).Objects, facts.Snapshot.Taken)
	}
	v.timeline = entries(facts, v.status.Nodes, c.observed.seen)
	c.keep(v, now, failing)
	return v, nil
}

func (c *cache) keep(v *view, tried, failing time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view, c.tried, c.failing = v, tried, failing
}
