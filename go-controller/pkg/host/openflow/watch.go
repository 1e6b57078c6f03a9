package openflow

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

const (
	resyncInterval = 30 * time.Second
	// watchPause is how long a watch pauses before it reconnects to a bridge.
	watchPause = 500 * time.Millisecond
	// settleTime is how long no change must happen before a burst of changes is handled.
	settleTime = 50 * time.Millisecond
	// settleLimit is the limit for bursts that do not end.
	settleLimit = 500 * time.Millisecond
	// longestLine is the maximum length of a line of ovs-ofctl.
	longestLine = 1 << 20
)

// Run repairs the bridge soon after somebody else changed its flows or ovs-vswitchd was restarted,
// and checks it every half minute, until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	wake := make(chan struct{}, 1)
	changed := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	go w.reconnect(ctx, func() error { return w.monitor(ctx, changed, w.own.is) })
	host.Keep(ctx, resyncInterval, wake, w.Resync, func(err error) {
		klog.ErrorS(err, "Cannot repair the flows of a bridge, will retry", "bridge", w.bridge)
	})
}

// Watch calls changed, which must not block, soon after each change of the bridge's flows,
// including our own but not learned flows, and each time the bridge becomes reachable again, until
// ctx ends.
func (w *Writer) Watch(ctx context.Context, changed func()) {
	w.reconnect(ctx, func() error { return w.monitor(ctx, changed, func(string) bool { return false }) })
}

// reconnect reconnects to the bridge whenever a connection ends, until ctx ends.
func (w *Writer) reconnect(ctx context.Context, connection func() error) {
	for ctx.Err() == nil {
		if err := connection(); err != nil && ctx.Err() == nil {
			klog.V(4).InfoS("Flows of a bridge cannot be watched at the moment", "bridge", w.bridge, "reason", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

// monitor reads the flow monitor of one connection until it ends. Its first lines list the existing
// flows, so each new connection reports a change. own reports whether a line is already known and
// is ignored.
func (w *Writer) monitor(ctx context.Context, changed func(), own func(line string) bool) error {
	b := newBurst(changed)
	defer b.stop()
	connected, learned := false, fmt.Sprintf("cookie=%#x", host.LearnedCookie)
	return w.follow(ctx, func(line string) {
		change := strings.Contains(line, "event=") && !strings.Contains(line, learned) && !own(line)
		if change || !connected && strings.Contains(line, "FLOW_MONITOR reply") {
			b.happened()
			connected = true
		}
	})
}

// follow passes the lines of the flow monitor of one connection to take until it ends.
func (w *Writer) follow(ctx context.Context, take func(line string)) error {
	cmd := exec.CommandContext(ctx, "ovs-ofctl", version, "--unixctl=none", "monitor", w.target, "watch:")
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("watch flows of bridge %s: %w", w.bridge, err)
	}
	cmd.Stderr = cmd.Stdout // also has the reason why it ends
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("watch flows of bridge %s: %w", w.bridge, err)
	}
	last := ""
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		last = lines.Text()
		take(last)
	}
	if lines.Err() != nil {
		_ = cmd.Cancel()
	}
	if err := errors.Join(lines.Err(), cmd.Wait()); err != nil {
		return fmt.Errorf("watch flows of bridge %s: %w: %s", w.bridge, err, last)
	}
	return nil
}

// burst calls a function once for several changes in quick succession.
type burst struct {
	mu    sync.Mutex
	first time.Time // first change that it was not called for yet; zero: none
	timer *time.Timer
}

func newBurst(f func()) *burst {
	b := &burst{}
	b.timer = time.AfterFunc(time.Hour, func() {
		b.mu.Lock()
		b.first = time.Time{}
		b.mu.Unlock()
		f()
	})
	return b
}

// happened makes the function be called when nothing else happens for settleTime, and settleLimit
// after the first change at the latest.
func (b *burst) happened() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.first.IsZero() {
		b.first = now
	}
	b.timer.Reset(max(0, min(settleTime, b.first.Add(settleLimit).Sub(now))))
}

func (b *burst) stop() { b.timer.Stop() }
