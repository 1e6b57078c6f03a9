package unixctl

import (
	"context"
	"errors"
	"time"
)

// blindWait is how long AwaitRevalidation waits if ovs-vswitchd does not say when it has revalidated its flows: it
// begins to at least every half second by default (other_config:max-revalidator), and keeps fewer flows if
// it takes longer than two seconds.
var blindWait = 2500 * time.Millisecond

// AwaitRevalidation waits until ovs-vswitchd has ended a revalidation of the flows that the datapath caches. One that began
// earlier counts. With datapaths of two types, as where a foreign bridge has datapath_type=netdev and the others
// do not, ovs-vswitchd refuses to say when that is.
func (d Daemon) AwaitRevalidation(ctx context.Context) error {
	_, err := d.Call(ctx, "revalidator/wait")
	if !errors.Is(err, errRefused) {
		return err
	}
	select {
	case <-time.After(blindWait):
		return nil
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}
