package app

import (
	"context"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
)

// runNode is the work of node name. It calls started once the node serves pods.
func runNode(ctx context.Context, _ *Env, _ string, started func()) error {
	started()
	<-ctx.Done()
	return nil
}

// cleanupNode leaves the host of node name as it was found.
func cleanupNode(_ context.Context, _ config.Config, _ string) error {
	return nil
}
