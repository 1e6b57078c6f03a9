package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/watch"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// The kinds of objects on the host.
const (
	chains     = "iptables chains"
	routes     = "routes"
	addresses  = "addresses"
	flows      = "bridge flows"
	gwFlows    = "flows for external gateways"
	ipRules    = "ip rules"
	parameters = "kernel parameters"
)

// sweeper is the driver for one kind of object on the host.
type sweeper interface {
	// Resync compares actual and desired objects and repairs differences.
	Resync(ctx context.Context) error
	// Sweep is like Resync, but also deletes what no contributor wants, from now on.
	Sweep(ctx context.Context) error
}

// hostWriters keep the objects of the host in the desired state.
//
// Repairs wait for nobody. What an earlier run left is deleted once all contributors have
// contributed for everything that existed at startup: as long as it is unknown what an object needs
// because it keeps failing, existing state may be that object's, and without it its traffic would
// leave with another address. What a contributor of this run no longer wants is deleted
// immediately.
type hostWriters struct {
	swept  map[string]sweeper
	synced []<-chan struct{}
	guard  func()
	// trim deletes the data that was needed to recognize leftovers.
	trim func(ctx context.Context) error
	// events subscribes to changes of the host: watch.Watch.
	events func(ctx context.Context, f watch.Functions) error
	// looks are for kinds of which the kernel reports no changes, or not all: if the result, which
	// is cheap to get, is different, something was changed.
	looks map[string]func() (string, error)
}

// pollInterval is the pause between two looks.
const pollInterval = 500 * time.Millisecond

// resync is one pass over all kinds; a failure does not keep the other kinds from being repaired.
func (d hostWriters) resync(ctx context.Context) error {
	d.guard()
	sweep := d.allSynced()
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(d.swept)) {
		errs = append(errs, d.pass(ctx, what, sweep))
	}
	if err := errors.Join(errs...); err != nil || !sweep {
		return err
	}
	return d.trim(ctx)
}

// pass is one pass over a single kind.
func (d hostWriters) pass(ctx context.Context, what string, sweep bool) error {
	pass := d.swept[what].Resync
	if sweep {
		pass = d.swept[what].Sweep
	}
	if err := pass(ctx); err != nil {
		return fmt.Errorf("resync %s: %w", what, err)
	}
	return nil
}

// watch repairs each kind of object as soon as the kernel reports that somebody may have changed
// one, until ctx ends. Failures do not hold up other kinds.
func (d hostWriters) watch(ctx context.Context) error {
	repairs := map[string]func(){}
	for what := range d.swept {
		repairs[what] = repairer(ctx, func(ctx context.Context) error { return d.pass(ctx, what, d.allSynced()) })
	}
	for what, look := range d.looks {
		go pollChanges(ctx, what, look, repairs[what])
	}
	guard := repairer(ctx, func(context.Context) error { d.guard(); return nil })
	return d.events(ctx, watch.Functions{
		IPRules: repairs[ipRules], Routes: repairs[routes], Addresses: repairs[addresses], Settings: repairs[parameters],
		NFTables: func() {
			guard()
			repairs[chains]()
		},
	})
}

// pollChanges calls changed whenever the result of look has changed, until ctx ends.
func pollChanges(ctx context.Context, what string, look func() (string, error), changed func()) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	last, failed := "", false
	for {
		now, err := look()
		switch {
		case err != nil && !failed:
			klog.ErrorS(err, "Changes by others will not be noticed at once", "what", what)
			failed = true
		case err == nil && now != last:
			changed()
			last, failed = now, false
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// repairPause is the minimum time between two repairs of one kind: other programs, and our own
// writes, may change it many times a second.
const repairPause = 500 * time.Millisecond

// repairer returns a function that makes repair run soon, until ctx ends. If repair fails, it is
// retried after a pause that doubles with each failure, up to resyncInterval.
func repairer(ctx context.Context, repair func(context.Context) error) func() {
	wake := make(chan struct{}, 1)
	poke := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	go func() {
		var retry <-chan time.Time
		pause := repairPause
		for {
			select {
			case <-wake:
			case <-retry:
			case <-ctx.Done():
				return
			}
			err := panics.Catch("resync", func() error { return repair(ctx) })
			retry = nil
			if err == nil {
				pause = repairPause
			} else if ctx.Err() == nil {
				klog.ErrorS(err, "Repair failed, will retry", "after", pause)
				retry = time.After(pause)
				pause = min(2*pause, resyncInterval)
			}
			select {
			case <-time.After(repairPause):
			case <-ctx.Done():
				return
			}
		}
	}()
	return poke
}

func (d hostWriters) allSynced() bool {
	return !slices.ContainsFunc(d.synced, func(synced <-chan struct{}) bool {
		select {
		case <-synced:
			return false
		default:
			return true
		}
	})
}
