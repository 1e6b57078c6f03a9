package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// retryInterval is the delay before a failed pass is retried.
const retryInterval = time.Second

// contributor is the manager's own contributor name with the OpenFlow driver.
const contributor = "bridge"

// Writer is the OpenFlow driver of one bridge.
type Writer interface {
	host.FlowWriter
	// Run repairs the bridge until ctx ends, e.g. after ovs-vswitchd was restarted or somebody
	// edited the flows.
	Run(ctx context.Context)
	// Blank reports whether the bridge has none of our flows, as after a boot.
	Blank(ctx context.Context) (bool, error)
	// Settle waits until no packet uses flows that were replaced before the call.
	Settle(ctx context.Context) error
	// Packets returns how many packets the flows of each table and priority have matched.
	Packets(ctx context.Context) (map[host.FlowLevel]uint64, error)
}

// Attachment names the bridge whose flows are managed and its ports.
type Attachment struct {
	Bridge string // OVS name, e.g. breth0
	Uplink string // interface names of its ports
	Patch  string
	Facts  bridge.Bridge
}

// Manager implements host.FlowWriter for flows with the symbols of package bridge.
type Manager struct {
	required []string // contributors without which the flows are not complete
	ports    Ports
	open     func(bridge string) Writer
	wake     chan struct{}
	passes   *host.Coalescer[error]

	mu          sync.Mutex // guards the fields below, never held over I/O
	onComplete  []func()
	at          Attachment
	writer      Writer // nil if no bridge is attached
	flows       map[string]*host.FlowList
	matches     map[string]int  // how many flows in flows have a match
	twice       int             // how many matches more than one flow has
	contributed map[string]bool // who has contributed, including empty contributions
	swept       bool
	synced      bool
	numbers     bridge.Ports // the last known ones
	// applied is the basis of the flows that the driver was last given, or zero if that failed.
	// changed are the flows that have changed one by one since then (true: added); anew means that
	// all have to be given again.
	applied basis
	changed map[host.Flow]bool
	anew    bool
	cleared bool // the driver was swept
}

// basis is what the flows of the bridge depend on besides the contributed flows.
type basis struct {
	at       Attachment
	ports    bridge.Ports
	complete bool
}

// Ports is the part of the OVS driver that reads port numbers.
type Ports interface {
	Ports(ctx context.Context, bridge string) ([]ovs.Port, error)
	OnInterface(f func(name string))
	OnReconnect(f func())
}

var _ host.FlowWriter = (*Manager)(nil)

// New returns a Manager that is not attached to a bridge. required are the contributors without
// whose flows the others are useless or harmful. open returns the driver of a bridge.
func New(required []string, ports Ports, open func(bridge string) Writer) *Manager {
	m := &Manager{
		required: required, ports: ports, open: open,
		wake: make(chan struct{}, 1), passes: host.NewCoalescer[error](),
		flows: map[string]*host.FlowList{}, matches: map[string]int{}, contributed: map[string]bool{},
	}
	ports.OnInterface(func(name string) {
		if m.Concerns(name) {
			m.poke()
		}
	})
	ports.OnReconnect(m.poke)
	return m
}

// OnComplete registers a function that is called each time the flows of all contributors have been
// installed after they were incomplete. It must not block.
func (m *Manager) OnComplete(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onComplete = append(m.onComplete, f)
}

// Concerns reports whether an OVS interface belongs to the managed bridge.
func (m *Manager) Concerns(iface string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writer != nil && (iface == m.at.Uplink || iface == m.at.Patch || iface == m.at.Bridge)
}

func (m *Manager) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Attach sets the bridge and installs the flows that can be installed. It is called again whenever
// the facts may have changed; if they have not, nothing is written.
func (m *Manager) Attach(ctx context.Context, at Attachment) error {
	m.mu.Lock()
	if m.writer == nil || m.at.Bridge != at.Bridge {
		m.writer, m.numbers = m.open(at.Bridge), bridge.Ports{}
		m.applied, m.cleared, m.synced = basis{}, false, false
	}
	m.at = at
	m.mu.Unlock()
	m.poke() // Run starts the driver of a new bridge
	return m.sync(ctx)
}

// Apply implements host.FlowWriter: it replaces what owner wants. The driver is given only the flows that
// differ, if there are few and their order does not matter.
func (m *Manager) Apply(ctx context.Context, owner string, flows []host.Flow) error {
	m.mu.Lock()
	m.contributed[owner] = true
	before, after := m.flows[owner], newFlowList(flows)
	remove, add := difference(before, after)
	n, reordered := len(remove)+len(add), !slices.Equal(before.Flows(), after.Flows())
	switch ambiguous := m.change(owner, remove, add); {
	case n == 0:
		m.anew = m.anew || reordered && m.twice > 0
	case ambiguous || 2*n >= len(before.Flows()): // what is new may be on the bridge from an earlier run
		m.anew = true
	}
	if len(flows) == 0 {
		delete(m.flows, owner)
	} else {
		m.flows[owner] = after
	}
	m.mu.Unlock()
	return m.sync(ctx)
}

// newFlowList returns a list in which the whole text of a flow is its key.
func newFlowList(flows []host.Flow) *host.FlowList {
	return host.NewFlowList(func(f host.Flow) string { return string(f) }, flows)
}

// difference returns the flows that turn one list into another.
func difference(before, after *host.FlowList) (remove, add []host.Flow) {
	for _, f := range before.Flows() {
		if !after.Has(string(f)) {
			remove = append(remove, f)
		}
	}
	for _, f := range after.Flows() {
		if !before.Has(string(f)) {
			add = append(add, f)
		}
	}
	return remove, add
}

// Change implements host.FlowWriter.
func (m *Manager) Change(ctx context.Context, owner string, remove, add []host.Flow) error {
	m.mu.Lock()
	m.contributed[owner] = true
	m.change(owner, remove, add)
	m.mu.Unlock()
	return m.sync(ctx)
}

// change removes some of an owner's flows and adds others. It reports whether others with the match of one of
// them are wanted before or after that, so that the order of all flows decides; m.mu is held.
func (m *Manager) change(owner string, remove, add []host.Flow) (ambiguous bool) {
	shared := func(f host.Flow) bool { return m.matches[f.Match()] > 1 }
	ambiguous = slices.ContainsFunc(remove, shared)
	list := m.flows[owner]
	if list == nil {
		list = newFlowList(nil)
		m.flows[owner] = list
	}
	if m.changed == nil {
		m.changed = map[host.Flow]bool{}
	}
	for _, f := range remove {
		if list.Has(string(f)) {
			list.Delete(string(f))
			m.count(f, -1)
		}
		if !m.contributes(f) {
			m.changed[f] = false
		}
	}
	for _, f := range add {
		if !list.Has(string(f)) {
			list.Put(f)
			m.count(f, 1)
		}
		m.changed[f] = true
	}
	return ambiguous || slices.ContainsFunc(add, shared)
}

// count adds n, 1 or -1, to the number of flows with the match of a flow; m.mu is held.
func (m *Manager) count(f host.Flow, n int) {
	match := f.Match()
	was := m.matches[match]
	is := was + n
	if m.matches[match] = is; is == 0 {
		delete(m.matches, match)
	}
	if max(was, is) == 2 {
		m.twice += n
	}
}

// contributes reports whether any contributor wants a flow; m.mu is held.
func (m *Manager) contributes(f host.Flow) bool {
	for _, flows := range m.flows {
		if flows.Has(string(f)) {
			return true
		}
	}
	return false
}

// Sweep implements host.FlowWriter.
func (m *Manager) Sweep(ctx context.Context) error {
	m.mu.Lock()
	m.swept = true
	m.mu.Unlock()
	return m.sync(ctx)
}

// Resync compares the bridge with what is wanted. Changes of its flows by others are repaired by
// the driver itself.
func (m *Manager) Resync(ctx context.Context) error { return m.sync(ctx) }

// Synced reports whether the flows of all contributors are installed.
func (m *Manager) Synced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.synced
}

// Missing returns what is missing for complete flows, or "" if nothing is.
func (m *Manager) Missing() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.synced {
		return ""
	}
	for _, owner := range m.required {
		if !m.contributed[owner] {
			return owner + " to say which flows it wants on the external bridge"
		}
	}
	return "ovs-vswitchd to number the ports of the external bridge"
}

// Run keeps the flows in the desired state until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	var running Writer
	stop := func() {}
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		m.mu.Lock()
		current := m.writer
		m.mu.Unlock()
		if current != running {
			stop()
			var inner context.Context
			inner, stop = context.WithCancel(ctx)
			go current.Run(inner)
			running = current
		}
		if err := m.sync(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "External bridge is not configured yet, will retry")
		}
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-m.wake:
		case <-retry.C:
		}
	}
}

// sync makes one pass; callers that waited share it.
func (m *Manager) sync(ctx context.Context) error {
	result, err := m.passes.Do(ctx, m.passes.Request(), func(ctx context.Context) error {
		return panics.Catch("bridge flows", func() error { return m.pass(ctx) })
	})
	if err != nil {
		return err
	}
	return result
}

func (m *Manager) pass(ctx context.Context) error {
	m.mu.Lock()
	at, writer, swept := m.at, m.writer, m.swept
	m.mu.Unlock()
	if writer == nil {
		return nil
	}
	ports, err := m.lookup(ctx, at)
	if err != nil {
		return err
	}
	j := m.take(at, ports)
	given := false
	defer func() {
		if !given {
			m.failed()
		}
	}()
	complete := j.basis.complete
	if !complete && ports.Complete() {
		// After a restart the bridge still has its flows; replacing them by the initial flows would
		// cut the gateway router off. After a boot it has none, and the gateway router would answer
		// for all addresses of its translations.
		if blank, err := writer.Blank(ctx); err != nil || !blank {
			return err
		}
	}
	if err := j.write(ctx, writer); err != nil {
		return fmt.Errorf("write flows of %s: %w", at.Bridge, err)
	}
	m.mu.Lock()
	sweep := swept && complete && !m.cleared
	m.mu.Unlock()
	if sweep {
		if err := writer.Sweep(ctx); err != nil {
			return fmt.Errorf("sweep flows of %s: %w", at.Bridge, err)
		}
	}
	switch {
	case j.all:
		klog.V(2).InfoS("External bridge has its flows", "bridge", at.Bridge, "flows", len(j.add), "complete", complete, "ports", ports)
	case len(j.add)+len(j.remove) > 0:
		klog.V(4).InfoS("Changed flows of the external bridge", "bridge", at.Bridge, "added", len(j.add), "removed", len(j.remove))
	}
	given = true
	m.done(j.basis, sweep)
	return nil
}

// job is what a pass gives to the driver: all flows, or the changed ones.
type job struct {
	basis       basis
	all         bool
	remove, add []host.Flow
}

func (j job) write(ctx context.Context, w Writer) error {
	switch {
	case j.all:
		return w.Apply(ctx, contributor, j.add)
	case len(j.remove)+len(j.add) > 0:
		return w.Change(ctx, contributor, j.remove, j.add)
	}
	return nil
}

// take returns what has to be given to the driver, and records it as given.
func (m *Manager) take(at Attachment, ports bridge.Ports) job {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := job{basis: basis{at: at, ports: ports, complete: ports.Complete() && m.allContributed()}}
	same := m.applied == j.basis
	switch {
	case same && !j.basis.complete: // contributions do not matter yet
		return j
	case same && !m.anew:
		for f, added := range m.changed {
			if added {
				j.add = append(j.add, f)
			} else {
				j.remove = append(j.remove, f)
			}
		}
		j.add, j.remove = ports.Resolve(j.add), ports.Resolve(j.remove)
	default:
		j.all, j.add = true, m.want(j.basis)
		m.synced = m.synced && j.basis.complete // existing flows stay until all are replaced at once
	}
	m.anew, m.changed = false, nil
	return j
}

// failed records that the state of the driver is unknown.
func (m *Manager) failed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied, m.synced = basis{}, false
}

// done records the state of the driver.
func (m *Manager) done(applied basis, swept bool) {
	m.mu.Lock()
	var notify []func()
	if applied.complete && !m.synced {
		notify = slices.Clone(m.onComplete)
	}
	m.applied, m.synced, m.cleared = applied, applied.complete, m.cleared || swept
	m.mu.Unlock()
	for _, f := range notify {
		f()
	}
}

// lookup reads the port numbers. A port that is temporarily gone keeps its last number: the flows
// stay and work again once the port is back.
func (m *Manager) lookup(ctx context.Context, at Attachment) (bridge.Ports, error) {
	list, err := m.ports.Ports(ctx, at.Bridge)
	if err != nil {
		return bridge.Ports{}, fmt.Errorf("list ports of %s: %w", at.Bridge, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.numbers
	for _, p := range list {
		switch {
		case p.OFPort <= 0:
		case p.Name == at.Uplink:
			now.Uplink = p.OFPort
		case p.Name == at.Patch:
			now.Patch = p.OFPort
		}
	}
	m.numbers = now
	return now, nil
}

// want returns the desired flows of the bridge; m.mu is held.
func (m *Manager) want(b basis) []host.Flow {
	if !b.complete {
		return b.ports.Resolve(bridge.InitialFlows(b.at.Facts))
	}
	var all []host.Flow
	for _, owner := range slices.Sorted(maps.Keys(m.flows)) {
		all = append(all, m.flows[owner].Flows()...)
	}
	return b.ports.Resolve(all)
}

// allContributed reports whether all required contributors have contributed; m.mu is held.
func (m *Manager) allContributed() bool {
	return !slices.ContainsFunc(m.required, func(owner string) bool { return !m.contributed[owner] })
}

// Settle waits until no packet uses flows that were replaced before the call. Without a bridge it
// returns at once.
func (m *Manager) Settle(ctx context.Context) error {
	m.mu.Lock()
	writer := m.writer
	m.mu.Unlock()
	if writer == nil {
		return nil
	}
	return writer.Settle(ctx)
}

// Packets returns how many packets the flows of each table and priority have matched; none if no bridge
// is attached.
func (m *Manager) Packets(ctx context.Context) (map[host.FlowLevel]uint64, error) {
	m.mu.Lock()
	writer := m.writer
	m.mu.Unlock()
	if writer == nil {
		return nil, nil
	}
	return writer.Packets(ctx)
}
