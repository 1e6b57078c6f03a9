package plane

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/watch"
)

// Changes records the times of changes.
type Changes struct {
	mu    sync.Mutex
	times []time.Time
	close func()
}

func (c *Changes) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times = append(c.times, time.Now())
}

// Close stops watching.
func (c *Changes) Close() { c.close() }

// Since returns the times of the changes after the first n.
func (c *Changes) Since(n int) []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.times[n:])
}

// Count returns how many changes there were.
func (c *Changes) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.times)
}

// WatchFlows watches changes of the flows of a bridge until Close.
func (h *Host) WatchFlows(bridge string) (*Changes, error) {
	cmd := exec.Command("ovs-ofctl", openFlow, "--unixctl=none", "monitor", bridge, "watch:!initial")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout // where it prints
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watch flows of %s: %w", bridge, err)
	}
	c := &Changes{close: func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}}
	began := make(chan struct{})
	go func() {
		first := sync.OnceFunc(func() { close(began) })
		defer first()
		for lines := bufio.NewScanner(out); lines.Scan(); first() {
			if strings.Contains(lines.Text(), "event=") {
				c.note()
			}
		}
	}()
	select {
	case <-began: // it has begun to watch, or ended
	case <-time.After(patience):
	}
	return c, nil
}

// WatchRules watches changes of the packet filter until ctx ends.
func (h *Host) WatchRules(ctx context.Context) (*Changes, error) {
	c := &Changes{close: func() {}}
	return c, h.inside(func() error { return watch.Watch(ctx, watch.Functions{NFTables: c.note}) })
}

// openFlow is the OpenFlow version that ovnkube uses.
const openFlow = "-OOpenFlow14"

// Flows returns how many flows a bridge has.
func (h *Host) Flows(bridge string) (n int, err error) {
	text, err := exec.Command("ovs-ofctl", openFlow, "dump-aggregate", bridge).Output()
	if err != nil {
		return 0, fmt.Errorf("count flows of %s: %w", bridge, err)
	}
	_, count, _ := strings.Cut(string(text), "flow_count=")
	if _, err := fmt.Sscanf(count, "%d", &n); err != nil {
		return 0, fmt.Errorf("count flows of %s: %q", bridge, text)
	}
	return n, nil
}
