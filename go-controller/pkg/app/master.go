package app

import "context"

// runMaster is the master's work while it leads, under the name of its node.
func runMaster(ctx context.Context, _ *Env, _ string) error {
	<-ctx.Done()
	return nil
}
