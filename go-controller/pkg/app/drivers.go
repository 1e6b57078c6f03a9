package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// sweeper is a driver of one kind of object of the host.
type sweeper interface {
	// Resync compares what is there with what is wanted and repairs what differs.
	Resync(ctx context.Context) error
	// Sweep is Resync that also deletes what nobody wants, from now on.
	Sweep(ctx context.Context) error
}

// drivers keep the objects of the host as wanted.
//
// Repairs wait for nobody. What an earlier run left is deleted once all who
// contribute have spoken for everything that was there at the start: as long as one
// object keeps failing before anything is known of what it wants, what is there may
// be its own, and without it its traffic would leave with another address. What a
// contributor of this run does not want any more is deleted all the same.
type drivers struct {
	swept  map[string]sweeper
	spoken []<-chan struct{}
	guard  func()
	// trim forgets what was needed to know the leftovers.
	trim func(ctx context.Context) error
}

// resync is one pass over all kinds; one that fails does not keep the others from
// being repaired.
func (d drivers) resync(ctx context.Context) error {
	d.guard()
	sweep := d.allSpoken()
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(d.swept)) {
		pass := d.swept[what].Resync
		if sweep {
			pass = d.swept[what].Sweep
		}
		if err := pass(ctx); err != nil {
			errs = append(errs, fmt.Errorf("resync %s: %w", what, err))
		}
	}
	if sweep && len(errs) == 0 {
		errs = append(errs, d.trim(ctx))
	}
	return errors.Join(errs...)
}

func (d drivers) allSpoken() bool {
	return !slices.ContainsFunc(d.spoken, func(spoken <-chan struct{}) bool {
		select {
		case <-spoken:
			return false
		default:
			return true
		}
	})
}
