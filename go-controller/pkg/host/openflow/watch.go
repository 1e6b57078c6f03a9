package openflow

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

const (
	resyncInterval = 30 * time.Second
	// watchPause is how long Watch rests before it connects to a bridge again.
	watchPause = 500 * time.Millisecond
	// settleTime is how long a burst of changes is let run before it is looked at.
	settleTime = 50 * time.Millisecond
)

// Run repairs the bridge soon after its flows were changed by somebody else or
// ovs-vswitchd was restarted, and looks every half minute, until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	wake := make(chan struct{}, 1)
	go w.Watch(ctx, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	host.Keep(ctx, resyncInterval, wake, w.Resync, func(err error) {
		klog.ErrorS(err, "Cannot repair the flows of a bridge, will retry", "bridge", w.bridge)
	})
}

// Watch calls changed, which must not block, soon after each change of the
// bridge's flows, our own included but not what they learn, and each time the bridge can be reached
// again, until ctx ends.
func (w *Writer) Watch(ctx context.Context, changed func()) {
	for ctx.Err() == nil {
		if err := w.monitor(ctx, changed); err != nil && ctx.Err() == nil {
			klog.V(4).InfoS("Flows of a bridge cannot be watched at the moment", "bridge", w.bridge, "reason", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

// monitor follows the flow monitor of one connection until that ends. Its first
// lines list the flows there are, so each new connection reports a change.
func (w *Writer) monitor(ctx context.Context, changed func()) error {
	cmd := exec.CommandContext(ctx, "ovs-ofctl", version, "--unixctl=none", "monitor", w.target, "watch:")
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("watch flows of bridge %s: %w", w.bridge, err)
	}
	cmd.Stderr = cmd.Stdout // where it prints, and why it ends
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("watch flows of bridge %s: %w", w.bridge, err)
	}
	pending := time.AfterFunc(time.Hour, changed)
	defer pending.Stop()
	last, connected, learned := "", false, fmt.Sprintf("cookie=%#x", host.LearnedCookie)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		last = lines.Text()
		change := strings.Contains(last, "event=") && !strings.Contains(last, learned)
		if change || !connected && strings.Contains(last, "FLOW_MONITOR reply") {
			pending.Reset(settleTime)
			connected = true
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("watch flows of bridge %s: %w: %s", w.bridge, err, last)
	}
	return nil
}
