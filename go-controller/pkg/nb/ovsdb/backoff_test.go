package ovsdb

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackoffEnds: however long the database has been away, it is looked for every
// few seconds.
func TestBackoffEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{
			cfg: Config{}.withDefaults(), endpoints: []string{"unix:/nonexistent/sock"}, tables: newTableIndex(),
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
		if longest > 10*time.Second {
			t.Errorf("nobody looked for the database for %s", longest)
		}
	})
}
