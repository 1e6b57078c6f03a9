package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// failing is a datapath whose requests fail now and then.
type failing struct {
	*datapath
	rng   *rand.Rand
	share float64
}

func (f *failing) broke() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rng.Float64() < f.share {
		return errors.New("the datapath is busy")
	}
	return nil
}

func (f *failing) List(ctx context.Context) ([]host.Steered, error) {
	if err := f.broke(); err != nil {
		return nil, err
	}
	return f.datapath.List(ctx)
}

// Flush may fail when it has deleted some connections.
func (f *failing) Flush(ctx context.Context, connections []host.Steered) error {
	if err := f.broke(); err != nil {
		return errors.Join(err, f.datapath.Flush(ctx, connections[:len(connections)/2]))
	}
	return f.datapath.Flush(ctx, connections)
}

// history is a random sequence of actions of the master, the pods and the datapath.
type history struct {
	t      *testing.T
	rng    *rand.Rand
	client *kubefake.Clientset
	faults *fakeapi.Faults
	db     *failing
	stop   func()
	used   map[string]map[string]bool // by namespace, the last parts of its gateways
	events []string
}

// pods are the addresses of this node's pods, by namespace.
var pods = map[string][]string{"red": {"10.244.0.5", "10.244.0.6"}, "blue": {"10.244.0.7"}}

func (h *history) start() {
	core := informers.NewSharedInformerFactory(h.client, fakeapi.NoResync)
	c, err := New(Deps{Namespaces: core.Core().V1().Namespaces(), Pods: core.Core().V1().Pods(), Connections: h.db, OnApplied: never, Settle: settled, Own: noAddrs,
		Resolve: func(_ context.Context, addrs []netip.Addr) (map[netip.Addr]string, error) {
			found := map[netip.Addr]string{}
			for _, a := range addrs {
				found[a] = "m" + a.String()[len("172.18.0."):]
			}
			return found, nil
		}})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.faults.Start(ctx, h.t, h.client, core)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx) // if stopped early, its caches may not have synced
	}()
	h.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		core.Shutdown()
	})
	h.t.Cleanup(h.stop)
}

func (h *history) say(format string, args ...any) {
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

// connect opens connections of a pod through the gateways of its namespace.
func (h *history) connect(ns string) {
	h.db.mu.Lock()
	defer h.db.mu.Unlock()
	for _, pod := range pods[ns] {
		for gateway := range h.used[ns] {
			h.db.entries[host.Steered{Zone: 6, Dst: netip.MustParseAddr(pod), Neighbor: "m" + gateway, Tuple: pod + gateway}] = true
		}
	}
}

// steered returns the expected entries: those of gateways in use.
func (h *history) steered() []string {
	var out []string
	for ns, addrs := range pods {
		for _, pod := range addrs {
			for gateway := range h.used[ns] {
				out = append(out, pod+" m"+gateway)
			}
		}
	}
	slices.Sort(out)
	return out
}

// event performs one action.
func (h *history) event() {
	ns := []string{"red", "blue"}[h.rng.IntN(2)]
	switch h.rng.IntN(8) {
	case 0, 1, 2:
		h.used[ns] = map[string]bool{}
		var list []string
		for _, gateway := range []string{"51", "52", "53"} {
			if h.rng.IntN(2) == 0 {
				h.used[ns][gateway] = true
				list = append(list, "172.18.0."+gateway)
			}
		}
		h.say("gateways of %s: %v", ns, list)
		h.faults.Do(func() {
			if _, err := h.client.CoreV1().Namespaces().Update(context.Background(), namespace(ns, strings.Join(list, ",")), metav1.UpdateOptions{}); err != nil {
				h.t.Fatal(err)
			}
		})
		if h.rng.IntN(2) == 0 {
			h.connect(ns)
		}
	case 3:
		h.say("connections of %s", ns)
		h.connect(ns)
	case 4:
		h.say("watches are lost")
		h.faults.Cut()
		synctest.Wait()
	case 5:
		h.say("restart")
		h.stop()
		h.start()
	case 6:
		h.say("a moment")
		<-time.After(time.Duration(h.rng.IntN(5000)) * time.Millisecond)
	case 7:
		synctest.Wait()
	}
}

// TestRandomOrders: whatever happens in whatever order, with a failing datapath and API server,
// lost watches and restarts in between, in the end there are the connections of gateways
// in use, and no others; and a restarted controller
// forgets nothing.
func TestRandomOrders(t *testing.T) {
	seeds.Each(t, 20, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			h := &history{t: t, rng: rng, client: fakeapi.NewClientset(namespace("red", ""), namespace("blue", "")),
				faults: fakeapi.NewFaults(rng), used: map[string]map[string]bool{},
				db: &failing{datapath: &datapath{entries: map[host.Steered]bool{}}, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}}
			for ns, addrs := range pods {
				for i, addr := range addrs {
					if err := h.client.Tracker().Add(pod(fmt.Sprint("p", i), ns, addr)); err != nil {
						t.Fatal(err)
					}
				}
			}
			fakeapi.Strict(h.client)
			h.faults.Inject(h.client)
			h.start()
			share := []float64{0, 0.1, 0.5}[rng.IntN(3)]
			h.faults.Set(share)
			h.db.mu.Lock()
			h.db.share = share
			h.db.mu.Unlock()
			for range 40 {
				h.event()
			}
			h.faults.Set(0)
			h.db.mu.Lock()
			h.db.share = 0
			h.db.mu.Unlock()
			fakeapi.Settle()
			h.connect("red")
			h.connect("blue")
			fakeapi.Settle()
			want := h.steered()
			if got := h.db.left(); !slices.Equal(got, want) {
				t.Errorf("steered are\n%q, want\n%q\nhistory:\n%s", got, want, strings.Join(h.events, "\n"))
			}
			h.stop()
			h.start()
			fakeapi.Settle()
			if got := h.db.left(); !slices.Equal(got, want) {
				t.Errorf("after a restart steered are\n%q, want\n%q\nhistory:\n%s", got, want, strings.Join(h.events, "\n"))
			}
		})
	})
}
