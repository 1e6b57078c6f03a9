package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// history is a random sequence of actions of users, the master and the host.
type history struct {
	*world
	rng    *rand.Rand
	share  float64 // of kernel requests that fail
	broken *rand.Rand
	events []string
	born   int
	there  map[string]bool // the existing EgressServices
}

var served = []string{"svc-0", "svc-1"}

func (h *history) pick(from ...string) string { return from[h.rng.IntN(len(from))] }

func (h *history) some(p float64) bool { return h.rng.Float64() < p }

func (h *history) say(format string, args ...any) {
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

// must fails the test if a user's request fails.
func (h *history) must(request func(ctx context.Context) error) {
	h.t.Helper()
	h.faults.Do(func() {
		err := request(context.Background())
		for apierrors.IsConflict(err) { // the node was faster
			err = request(context.Background())
		}
		if err != nil {
			h.t.Fatal(err)
		}
	})
}

// broke returns the error of a kernel request, if it fails this time.
func (h *history) broke() error {
	h.kernel.mu.Lock()
	defer h.kernel.mu.Unlock()
	if h.broken.Float64() < h.share {
		return errors.New("the kernel is busy")
	}
	return nil
}

// event performs one action.
func (h *history) event() {
	h.born++
	name := h.pick(served...)
	switch h.rng.IntN(8) {
	case 0, 1:
		h.anyEgress(name)
	case 2, 3:
		h.anyStatus(name)
	case 4:
		svc := service(name, [][]string{{"5.5.5.5", "5555::5"}, {"6.6.6.6"}, nil}[h.rng.IntN(3)]...)
		svc.Spec.ClusterIPs = []string{"10.96.135." + name[4:], "fd00:10:96::" + name[4:]}
		h.say("service %s %v", name, svc.Status.LoadBalancer.Ingress)
		h.must(func(ctx context.Context) error {
			_, err := h.kube.CoreV1().Services("default").Update(ctx, svc, metav1.UpdateOptions{})
			return err
		})
	case 5:
		var pods []string
		for range h.rng.IntN(4) {
			pods = append(pods, h.pick("10.244.0.5", "10.244.1.6", "10.244.0.3", "fd00:10:244:1::5", "10.244.1.66"))
		}
		slices.Sort(pods)
		s := slice(name, slices.Compact(pods)...)
		h.say("slice %s %v", name, pods)
		h.must(func(ctx context.Context) error {
			_, err := h.kube.DiscoveryV1().EndpointSlices("default").Update(ctx, s, metav1.UpdateOptions{})
			return err
		})
	case 6:
		p := pod("default", "a", "ovn-worker", "10.244.0.5", "fd00:10:244:1::5")
		if h.some(0.3) {
			p.Status.Phase = corev1.PodSucceeded
		}
		h.say("pod a %s", p.Status.Phase)
		h.must(func(ctx context.Context) error {
			_, err := h.kube.CoreV1().Pods("default").Update(ctx, p, metav1.UpdateOptions{})
			return err
		})
	case 7:
		table := h.rng.IntN(3)
		h.say("table of blue %d", table)
		h.kernel.mu.Lock()
		defer h.kernel.mu.Unlock()
		if delete(h.kernel.tables, "blue"); table > 0 {
			h.kernel.tables["blue"] = host.RoutingTable{Number: table}
		}
	}
}

func (h *history) anyEgress(name string) {
	services := h.egress.EgressServiceV1().EgressServices("default")
	if h.there[name] && h.some(0.3) {
		h.say("no egress %s", name)
		h.there[name] = false
		h.must(func(ctx context.Context) error { return services.Delete(ctx, name, metav1.DeleteOptions{}) })
		return
	}
	eg := egress(name, "")
	eg.CreationTimestamp = metav1.Unix(int64(h.born), 0)
	eg.UID = types.UID(fmt.Sprint(name, h.born))
	if h.some(0.4) {
		eg.Spec.Network = "blue"
	}
	if h.some(0.3) {
		eg.Spec.SourceIPBy = v1.SourceIPNetwork
	}
	h.say("egress %s by %q network %q", name, eg.Spec.SourceIPBy, eg.Spec.Network)
	h.must(func(ctx context.Context) error {
		if !h.there[name] {
			h.there[name] = true
			_, err := services.Create(ctx, eg, metav1.CreateOptions{})
			return err
		}
		have, err := services.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			have.Spec = eg.Spec
			_, err = services.Update(ctx, have, metav1.UpdateOptions{})
		}
		return err
	})
}

// anyStatus writes a status like the master and the other nodes.
func (h *history) anyStatus(name string) {
	if !h.there[name] {
		return
	}
	node, traffic := h.pick("ovn-worker", "ovn-worker2", "ovn-worker2", "", v1.HostAll), h.some(0.5)
	h.say("host of %s is %q, and has its traffic %v", name, node, traffic)
	h.set(name, func(s *v1.EgressServiceStatus) {
		before := s.Programmed
		programmedBy(node, traffic)(s)
		if node != "ovn-worker" { // the entry is this node's own
			s.Programmed = before
		}
	})
}

func (h *history) set(name string, change func(*v1.EgressServiceStatus)) {
	services := h.egress.EgressServiceV1().EgressServices("default")
	h.must(func(ctx context.Context) error {
		eg, err := services.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			change(&eg.Status)
			_, err = services.Update(ctx, eg, metav1.UpdateOptions{})
		}
		return err
	})
}

// settle makes the master report for each EgressService that its host has the traffic: until
// then it depends on the history whether the previous host continues.
func (h *history) settle() {
	for _, name := range served {
		if h.there[name] {
			h.set(name, func(s *v1.EgressServiceStatus) {
				if s.Host == "ovn-worker" {
					programmedBy(s.Host, true)(s)
				}
			})
		}
	}
}

// trouble disturbs the controller meanwhile.
func (h *history) trouble() {
	switch h.rng.IntN(12) {
	case 0:
		h.say("watches are lost")
		h.faults.Cut()
		synctest.Wait()
	case 1:
		h.say("restart")
		h.restart()
	case 2:
		h.say("a moment")
		<-time.After(time.Duration(h.rng.IntN(3000)) * time.Millisecond)
	case 3, 4:
		synctest.Wait()
	}
}

// restart starts another process: the chains are swept when all keys are reconciled, and have
// the new process's state from then on.
func (h *history) restart() {
	h.stop()
	fail := h.chains.Fail
	fresh := newWorld(h.t)
	h.chains = fresh.chains
	h.chains.Fail = fail
	h.start()
	for h.sweep(context.Background()) != nil { // like the caller, until it succeeds
		<-time.After(time.Second)
	}
}

// state returns the final state: the rules, and the node's reports.
func (w *world) state() string {
	var out strings.Builder
	list, _ := w.egress.EgressServiceV1().EgressServices("").List(context.Background(), metav1.ListOptions{})
	// A node that restarts during a move no longer knows the other host.
	moving := slices.ContainsFunc(list.Items, func(e v1.EgressService) bool { return e.Status.Host != "" && !egressservice.Done(e.Status) })
	for line := range strings.Lines(w.dump()) {
		if !moving || !strings.HasPrefix(line, "-A "+egressservice.ChainHandOn) && !strings.HasPrefix(line, "-A "+egressservice.ChainStray) {
			out.WriteString(line)
		}
	}
	out.WriteString(hostfake.DumpIPRules(w.ipRules.Objects()))
	for _, e := range list.Items {
		fmt.Fprintf(&out, "%s: host %q programmed %v\n", e.Name, e.Status.Host, e.Status.Programmed)
	}
	return out.String()
}

// requests counts the writes to the API.
func (w *world) requests() (n int) {
	for _, a := range w.egress.Actions() {
		if a.GetVerb() == "patch" {
			n++
		}
	}
	return n
}

// TestRandomOrders: whatever happens in whatever order, with a failing API server and kernel,
// lost watches and restarts in between, the final state equals the one that a node
// without rules and memory makes of the last objects, and a restarted one
// writes nothing.
func TestRandomOrders(t *testing.T) {
	seeds.Each(t, 8, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			h := &history{world: newWorld(t), rng: rng, there: map[string]bool{}, broken: rand.New(rand.NewPCG(rng.Uint64(), 0))}
			h.prepare()
			h.start()
			share := []float64{0, 0.1, 0.3}[rng.IntN(3)]
			h.faults.Set(share)
			h.kernel.mu.Lock()
			h.share = share
			h.kernel.mu.Unlock()
			for range 60 {
				h.event()
				h.trouble()
			}
			h.faults.Set(0)
			h.kernel.mu.Lock()
			h.share = 0
			h.kernel.mu.Unlock()
			fakeapi.Settle()
			h.settle()
			for range 3 {
				fakeapi.Settle()
			}
			fail := func(format string, args ...any) {
				t.Errorf("%s\nhistory:\n%s", fmt.Sprintf(format, args...), strings.Join(h.events, "\n"))
			}
			end, requests, writes, ipRules := h.state(), h.requests(), h.chains.Writes(), h.ipRules.Writes()
			fakeapi.Settle()
			if h.requests() != requests || h.chains.Writes() != writes || h.ipRules.Writes() != ipRules {
				fail("not at rest")
			}
			h.restart()
			fakeapi.Settle()
			if got := h.state(); got != end || h.requests() != requests || h.ipRules.Writes() != ipRules {
				fail("a restart made %d requests and %d writes of ip rules of\n%s\nthis:\n%s",
					h.requests()-requests, h.ipRules.Writes()-ipRules, end, got)
			}
			h.stop()
			h.ipRules = hostfake.NewKernel(map[host.IPRule]struct{}{})
			h.restart()
			fakeapi.Settle()
			if got := h.state(); got != end {
				fail("the end:\n%s\nfrom scratch:\n%s", end, got)
			}
		})
	})
}

// prepare creates the objects that will be changed, and injects faults.
func (h *history) prepare() {
	services, slices := h.kube.CoreV1().Services("default"), h.kube.DiscoveryV1().EndpointSlices("default")
	h.must(func(ctx context.Context) error {
		return h.egress.EgressServiceV1().EgressServices("default").Delete(ctx, "demo-svc", metav1.DeleteOptions{})
	})
	for _, name := range served {
		h.must(func(ctx context.Context) error {
			_, err := services.Create(ctx, service(name), metav1.CreateOptions{})
			return err
		})
		h.must(func(ctx context.Context) error {
			_, err := slices.Create(ctx, slice(name), metav1.CreateOptions{})
			return err
		})
	}
	h.faults = fakeapi.NewFaults(h.rng)
	h.faults.Inject(h.kube)
	h.faults.Inject(h.egress)
	h.chains.Fail = func(string) error { return h.broke() }
	h.ipRules.Fail = func(string, host.IPRule) error { return h.broke() }
	h.kernel.fail = h.broke
}
