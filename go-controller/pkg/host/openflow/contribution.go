package openflow

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// contribution is what one contributor wants: of flows with the same match, the first one counts. Adding a flow again changes
// nothing.
type contribution struct {
	first *host.FlowList
	rest  []host.Flow // the others
}

func newContribution(flows []host.Flow) *contribution {
	c := &contribution{first: host.NewFlowList(host.Flow.Match, flows)}
	if len(c.first.Flows()) == len(flows) {
		return c
	}
	for _, f := range flows {
		c.add(f)
	}
	return c
}

func (c *contribution) flows() []host.Flow {
	if c == nil {
		return nil
	}
	return c.first.Flows()
}

func (c *contribution) has(match string) bool { return c.first.Has(match) }

// change removes some flows and adds others, and returns by match the flows that are wanted now
// where that has changed; "" if no flow with this match is wanted any more.
func (c *contribution) change(remove, add []host.Flow) map[string]host.Flow {
	before := map[string]host.Flow{}
	for _, f := range slices.Concat(remove, add) {
		before[f.Match()] = c.first.Get(f.Match())
	}
	for _, f := range remove {
		c.remove(f)
	}
	for _, f := range add {
		c.add(f)
	}
	changed := map[string]host.Flow{}
	for m, f := range before {
		if now := c.first.Get(m); now != f {
			changed[m] = now
		}
	}
	return changed
}

func (c *contribution) add(f host.Flow) {
	switch m := f.Match(); {
	case !c.has(m):
		c.first.Put(f)
	case c.first.Get(m) != f && !slices.Contains(c.rest, f):
		c.rest = append(c.rest, f)
	}
}

func (c *contribution) remove(f host.Flow) {
	m := f.Match()
	if c.first.Get(m) != f {
		if i := slices.Index(c.rest, f); i >= 0 {
			c.rest = slices.Delete(c.rest, i, i+1)
		}
		return
	}
	c.first.Delete(m)
	if i := slices.IndexFunc(c.rest, func(o host.Flow) bool { return o.Match() == m }); i >= 0 {
		c.first.Put(c.rest[i])
		c.rest = slices.Delete(c.rest, i, i+1)
	}
}

// ownChangeTimeout is how long the flow monitor may take to report one of our own changes.
const ownChangeTimeout = 2 * time.Second

// expected counts the flow changes that this process makes itself, since the flow monitor reports
// these like the changes of others. Only their number is known: if others make a change in the
// meantime, there is one report too many, and then all flows are compared.
type expected struct {
	mu    sync.Mutex
	count int
	until time.Time
}

// expect announces n changes that are about to be made, or 0 if none are expected any more.
func (e *expected) expect(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if n == 0 || now.After(e.until) {
		e.count = 0
	}
	e.count, e.until = e.count+n, now.Add(ownChangeTimeout)
}

// is reports whether the change that the flow monitor reports may be one of ours.
func (e *expected) is(line string) bool {
	if !strings.Contains(line, fmt.Sprintf("cookie=%#x ", Cookie)) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count == 0 || time.Now().After(e.until) {
		return false
	}
	e.count--
	return true
}
