package app

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	cninode "github.com/ovnkube/ovnkube/go-controller/pkg/cni/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/watch"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// passes is a driver that counts its passes.
type passes struct {
	mu              sync.Mutex
	resyncs, sweeps int
}

func (p *passes) Resync(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resyncs++
	return nil
}

func (p *passes) Sweep(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweeps++
	return nil
}

// TestDriversAreKept: the host is repaired from startup on, leftovers are deleted as soon as all
// have contributed, and both are checked forever.
func TestDriversAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver, trims := &passes{}, new(atomic.Int32)
		attempted, synced := make(chan struct{}), make(chan struct{})
		watched := make(chan watch.Functions, 1)
		n := &node{
			rules: make(chan struct{}), attempted: []attempt{{"the things", attempted}}, synced: []<-chan struct{}{synced},
			kept: hostWriters{
				guard: func() {}, trim: func(context.Context) error { trims.Add(1); return nil },
				events: func(_ context.Context, f watch.Functions) error { watched <- f; return nil },
				swept:  map[string]sweeper{chains: driver},
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended, started := make(chan error, 1), false
		go func() { ended <- n.finishSetup(ctx, func() { started = true }) }()
		expect := func(what string, after time.Duration, resyncs, sweeps int) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			driver.mu.Lock()
			defer driver.mu.Unlock()
			if driver.resyncs != resyncs || driver.sweeps != sweeps || int(trims.Load()) != sweeps {
				t.Errorf("%s: %d repairs, %d sweeps, %d trims, want %d and %d", what, driver.resyncs, driver.sweeps, trims.Load(), resyncs, sweeps)
			}
		}
		expect("before all have tried", time.Hour, 0, 0)
		if started {
			t.Error("the node serves pods before its rules are there")
		}
		(<-watched).NFTables()
		expect("before all have tried, when somebody has changed something", time.Hour, 1, 0)
		close(attempted)
		expect("at once", time.Second, 2, 0)
		if !started {
			t.Error("the node does not serve pods")
		}
		expect("a while", resyncInterval, 3, 0)
		close(synced)
		expect("when all have spoken", time.Second, 3, 1)
		expect("for ever", 10*resyncInterval, 3, 11)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// clusterEnv is the Env of a process of a cluster with all features enabled. It reaches nothing.
func clusterEnv(t *testing.T) *Env {
	t.Helper()
	cfg, _, err := config.Load(config.Sources{Flags: map[string]string{
		"enable-egress-ip": "true", "enable-egress-service": "true", "enable-multi-external-gateway": "true",
		"gateway-mode": "local",
	}})
	if err != nil {
		t.Fatal(err)
	}
	env := testEnv(fakeapi.NewClientset())
	env.Config, env.REST = cfg, &rest.Config{Host: "http://127.0.0.1:1"}
	return env
}

// hostNode is a node that is wired on a host of its own. Its Open vSwitch does not run.
func hostNode(t *testing.T) *node {
	t.Helper()
	netnstest.New(t)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	n := newNode(clusterEnv(t), "n1")
	n.switches = ovs.New(ctx, "unix:/nonexistent")
	if _, err := n.build(ctx); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEveryDriverIsSwept: every driver of a node is among the hostWriters.
func TestEveryDriverIsSwept(t *testing.T) {
	n := hostNode(t)
	swept := map[uintptr]bool{}
	for _, s := range n.kept.swept {
		if c, ok := s.(translatingChains); ok {
			s = c.sweeper
		}
		swept[reflect.ValueOf(s).Pointer()] = true
	}
	drivers := 0
	for field, value := range reflect.ValueOf(n).Elem().Fields() {
		if !field.Type.Implements(reflect.TypeFor[sweeper]()) {
			continue
		}
		drivers++
		if !swept[value.Pointer()] {
			t.Errorf("nobody sweeps %s", field.Name)
		}
	}
	if drivers < 6 || len(swept) != drivers {
		t.Errorf("%d drivers, swept are %v", drivers, slices.Sorted(maps.Keys(n.kept.swept)))
	}
}

// TestPodsWaitForRules: the runtime is told that pods can be attached when the rules of the egress
// features are in place, and not before.
func TestPodsWaitForRules(t *testing.T) {
	n := hostNode(t)
	server := n.runners["cni"].(*cninode.Server)
	status := func() error {
		_, err := server.Handle(t.Context(), cni.Request{Command: cni.CommandStatus})
		return err
	}
	if err := status(); err == nil {
		t.Error("pods may come before the rules")
	}
	close(n.rules)
	if err := status(); err != nil {
		t.Errorf("with the rules: %v", err)
	}
}

// TestPodsWaitForEgress: at startup no pod gets its address before the EgressServices and the external gateways were
// processed, or podStartDelay has passed.
func TestPodsWaitForEgress(t *testing.T) {
	for _, feature := range []func(*config.Features){
		func(f *config.Features) { f.EgressService = true },
		func(f *config.Features) { f.MultiExternalGateway = true },
	} {
		testPodsWait(t, feature)
	}
}

// testPodsWait checks that pods wait for a feature.
func testPodsWait(t *testing.T, feature func(*config.Features)) {
	t.Helper()
	client, err := ovsdb.Connect(t.Context(), ovsdb.Config{Address: ovsdbtest.StartNB(t).Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	m := &master{env: clusterEnv(t), writer: ovsdb.NewWriter(client), runners: map[string]runner{}}
	f := &m.env.Config.Features
	f.EgressService, f.MultiExternalGateway = false, false
	feature(f)
	if _, err := m.build(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// A controller that starts fails without its informers.
	if err := m.runners["services"].Run(ctx); err == nil {
		t.Error("a controller works without informers")
	}
	if err := m.runners["pods"].Run(ctx); err != nil {
		t.Errorf("pods do not wait: %v", err)
	}
}

// TestAfter: a runner that waits for others starts after them, or without them after a while.
func TestAfter(t *testing.T) {
	for _, done := range []time.Duration{time.Second, 3 * time.Second, time.Hour} {
		t.Run(fmt.Sprint(done), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ch, began := make(chan struct{}), make(chan time.Time, 1)
				time.AfterFunc(done, func() { close(ch) })
				start := time.Now()
				other := make(chan struct{})
				time.AfterFunc(2*time.Second, func() { close(other) })
				if err := startAfter([]<-chan struct{}{ch, other}, loop(func(context.Context) error { began <- time.Now(); return nil })).Run(t.Context()); err != nil {
					t.Error(err)
				}
				if took := (<-began).Sub(start); took != min(max(done, 2*time.Second), podStartDelay) {
					t.Errorf("began after %s", took)
				}
			})
		})
	}
}
