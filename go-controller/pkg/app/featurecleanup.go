package app

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

// featureCleanup removes the rows of a disabled feature, since the plan for each of its owners is empty, and what was
// reported of it in the API.
type featureCleanup struct {
	feature string
	writer  nb.Writer
	retire  func(ctx context.Context) error
}

// Run implements runner.
func (r *featureCleanup) Run(ctx context.Context) error {
	rows := queue.New(r.feature+"-retired", func(ctx context.Context, object string) error {
		if _, err := r.writer.Apply(ctx, nb.Owner{Feature: r.feature, Object: object}, nil); err != nil {
			return fmt.Errorf("remove rows of %s %s: %w", r.feature, object, err)
		}
		return nil
	})
	rows.Seed(func() []string {
		var objects []string
		for _, o := range r.writer.Owners(r.feature) {
			objects = append(objects, o.Object)
		}
		return objects
	})
	reports := queue.New(r.feature+"-retired-reports", func(ctx context.Context, _ string) error {
		if err := r.retire(ctx); err != nil {
			return fmt.Errorf("remove reports of %s: %w", r.feature, err)
		}
		klog.V(2).InfoS("Nothing is reported of a disabled feature", "feature", r.feature)
		return nil
	})
	reports.Seed(func() []string { return []string{r.feature} })
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return rows.Run(ctx, 1) })
	group.Go(func() error { return reports.Run(ctx, 1) })
	return group.Wait()
}
