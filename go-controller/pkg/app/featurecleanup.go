package app

import (
	"context"
	"fmt"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

// featureCleanup removes the rows of a disabled feature: the plan for each of its owners is empty.
type featureCleanup struct {
	feature string
	writer  nb.Writer
}

// Run implements runner.
func (r *featureCleanup) Run(ctx context.Context) error {
	c := queue.New(r.feature+"-retired", func(ctx context.Context, object string) error {
		if _, err := r.writer.Apply(ctx, nb.Owner{Feature: r.feature, Object: object}, nil); err != nil {
			return fmt.Errorf("remove rows of %s %s: %w", r.feature, object, err)
		}
		return nil
	})
	c.Seed(func() []string {
		var objects []string
		for _, o := range r.writer.Owners(r.feature) {
			objects = append(objects, o.Object)
		}
		return objects
	})
	return c.Run(ctx, 1)
}
