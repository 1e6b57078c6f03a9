package ovsdb

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackoffEnds: however long the database has been down, a connection is attempted every
// few seconds, and every second for a cluster.
func TestBackoffEnds(t *testing.T) {
	t.Run("one server", func(t *testing.T) { backoffEnds(t, 5*time.Second, "unix:/nonexistent/sock") })
	t.Run("cluster", func(t *testing.T) { backoffEnds(t, time.Second, "unix:/nonexistent/a", "unix:/nonexistent/b") })
}

func backoffEnds(t *testing.T, limit time.Duration, endpoints ...string) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{
			cfg: Config{Address: strings.Join(endpoints, ",")}.withDefaults(), clustered: len(endpoints) > 1, tables: newTableIndex(),
			changed: make(chan struct{}), stopped: make(chan struct{}),
		}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		go c.run()
		longest, start := time.Duration(0), time.Now()
		for time.Since(start) < time.Hour {
			c.mu.Lock()
			changed := c.changed
			c.mu.Unlock()
			since := time.Now()
			<-changed // with each attempt
			longest = max(longest, time.Since(since))
		}
		c.Close()
		if longest > limit {
			t.Errorf("nobody looked for the database for %s", longest)
		}
	})
}
