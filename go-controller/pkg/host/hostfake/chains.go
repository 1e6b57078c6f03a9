package hostfake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Chains is a host.ChainWriter in memory.
type Chains struct {
	// Fail, if set, makes Apply of a contributor fail without effect.
	Fail func(contributor string) error

	mu       sync.Mutex
	declared []host.Chain
	want     map[string]host.Rules
	swept    bool
	last     string
	writes   int
}

var _ host.ChainWriter = (*Chains)(nil)

// NewChains returns a writer of the declared chains.
func NewChains(declared []host.Chain) *Chains {
	c := &Chains{declared: slices.Clone(declared), want: map[string]host.Rules{}}
	slices.SortStableFunc(c.declared, func(a, b host.Chain) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), strings.Compare(a.Table, b.Table),
			cmp.Compare(a.Position, b.Position), strings.Compare(a.Name, b.Name))
	})
	return c
}

// Apply implements host.ChainWriter.
func (c *Chains) Apply(_ context.Context, contributor string, want host.Rules) error {
	if c.Fail != nil {
		if err := c.Fail(contributor); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range want {
		if !slices.ContainsFunc(c.declared, func(d host.Chain) bool { return d.ChainKey == key }) {
			return fmt.Errorf("chain %s is not declared in table %s of %s", key.Name, key.Table, key.Family)
		}
	}
	next := host.Rules{}
	for key, rules := range want {
		next[key] = slices.Clone(rules)
	}
	c.want[contributor] = next
	c.count()
	return nil
}

// Sweep implements host.ChainWriter.
func (c *Chains) Sweep(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swept = true
	return nil
}

// Swept reports whether Sweep was called.
func (c *Chains) Swept() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.swept
}

// count counts a write if the content changed; c.mu is held.
func (c *Chains) count() {
	var now strings.Builder
	for _, f := range topology.Families {
		now.WriteString(c.dump(f))
	}
	if now.String() != c.last {
		c.last = now.String()
		c.writes++
	}
}

// Writes returns how many calls changed something.
func (c *Chains) Writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// Rules returns the content of one chain.
func (c *Chains) Rules(key host.ChainKey) []host.Rule {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rules(key)
}

func (c *Chains) rules(key host.ChainKey) []host.Rule {
	var out []host.Rule
	for _, name := range slices.Sorted(maps.Keys(c.want)) {
		for _, r := range c.want[name][key] {
			if !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// Dump prints our chains and jumps of one family as iptables-save does.
func (c *Chains) Dump(f topology.Family) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dump(f)
}

func (c *Chains) dump(f topology.Family) string {
	tables := map[string][]host.Chain{}
	for _, d := range c.declared {
		if d.Family == f {
			tables[d.Table] = append(tables[d.Table], d)
		}
	}
	var out strings.Builder
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		fmt.Fprintf(&out, "*%s\n", table)
		for _, d := range tables[table] {
			fmt.Fprintf(&out, ":%s - [0:0]\n", d.Name)
		}
		jumps := map[string][]string{}
		for _, d := range tables[table] {
			for _, j := range d.Jumps {
				jumps[j.From] = append(jumps[j.From], strings.TrimSpace(j.Match+" -j "+d.Name))
			}
		}
		for _, from := range slices.Sorted(maps.Keys(jumps)) {
			for _, j := range jumps[from] {
				fmt.Fprintf(&out, "-A %s %s\n", from, j)
			}
		}
		for _, d := range tables[table] {
			for _, r := range c.rules(d.ChainKey) {
				fmt.Fprintf(&out, "-A %s %s\n", d.Name, r)
			}
		}
		out.WriteString("COMMIT\n")
	}
	return out.String()
}
