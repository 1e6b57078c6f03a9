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

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// history is a random sequence of actions of users, the master, other nodes and the host.
type history struct {
	*world
	rng    *rand.Rand
	broken *rand.Rand
	share  float64 // of requests to the kernel and the bridge that fail
	events []string
	born   int
	there  map[string]bool // the existing EgressIPs and pods
	stop   func()
}

// choices are the addresses that each EgressIP may request; each address belongs to one of them.
var choices = map[string][][]string{
	"a": {{"172.18.0.50"}, {"172.18.0.50", "10.10.10.5"}, {"10.10.10.5"}},
	"b": {{"172.18.0.51", "fc00:f853:ccd:e793::51"}, {"10.10.10.6", "fd10::6"}, {"fd10::6"}},
}

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

// broke returns the error of a request to the kernel or the bridge, if it fails this time.
func (h *history) broke() error {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	if h.broken.Float64() < h.share {
		return errors.New("the kernel is busy")
	}
	return nil
}

// event performs one action.
func (h *history) event() {
	h.born++
	name := h.pick("a", "b")
	switch h.rng.IntN(9) {
	case 0, 1, 2, 3:
		h.anyEgressIP(name)
	case 4:
		h.say("%s has what it was given", other)
		h.otherActs()
	case 5, 6:
		h.anyPod(h.pick("red", "blue"), h.pick("web-0", "web-1"))
	case 7:
		there := h.some(0.7)
		h.say("the second network is there: %v", there)
		networks := []host.Network{{Link: "breth0", Index: 4, Addrs: prefixes("172.18.0.3/16", "fc00:f853:ccd:e793::3/64")}}
		if there {
			networks = append(networks, dummy("dummy"))
		}
		h.setNetworks(networks...)
	case 8:
		value := h.pick("", `["10.10.10.5"]`, `no json`)
		h.say("the record says %q", value)
		h.faults.Do(func() { h.record(value) })
	}
}

// anyEgressIP does a write of users or the master.
func (h *history) anyEgressIP(name string) {
	ips := h.api.EgressIPV1().EgressIPs()
	if h.there[name] && h.some(0.15) {
		h.say("no egress %s", name)
		h.there[name] = false
		h.must(func(ctx context.Context) error { return ips.Delete(ctx, name, metav1.DeleteOptions{}) })
		return
	}
	addrs := choices[name][h.rng.IntN(len(choices[name]))]
	var items []string
	for _, a := range addrs {
		if node := h.pick(self, self, other, ""); node != "" {
			items = append(items, a+" "+node)
		}
	}
	team := h.pick("red", "blue")
	h.say("egress %s %v of %s: %v", name, addrs, team, items)
	h.must(func(ctx context.Context) error {
		e := object(name, addrs, items)
		e.UID = types.UID(fmt.Sprint(name, h.born))
		e.Spec.NamespaceSelector.MatchLabels = map[string]string{"team": team}
		if !h.there[name] {
			h.there[name] = true
			_, err := ips.Create(ctx, e, metav1.CreateOptions{})
			return err
		}
		have, err := ips.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			have.Spec, have.Status.Items = e.Spec, e.Status.Items
			_, err = ips.Update(ctx, have, metav1.UpdateOptions{})
		}
		return err
	})
}

// otherActs makes the other node take what it may, and release the rest.
func (h *history) otherActs() {
	for _, name := range []string{"a", "b"} {
		if !h.there[name] {
			continue
		}
		h.must(func(ctx context.Context) error {
			have, err := h.api.EgressIPV1().EgressIPs().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			status := v1.ProgrammedStatus{Node: other}
			ours, _ := egressip.NodeStatusOf(have.Status, self)
			for _, item := range egressip.ItemsOf(have.Status, other) {
				switch {
				case item.Node == other && item.From != "":
					status.Awaiting = append(status.Awaiting, item.EgressIP)
				case item.Node == other && !slices.Contains(ours.EgressIPs, item.EgressIP):
					status.EgressIPs = append(status.EgressIPs, item.EgressIP)
				}
			}
			have.Status.Programmed = slices.DeleteFunc(have.Status.Programmed, func(p v1.ProgrammedStatus) bool { return p.Node == other })
			if len(have.Status.Programmed) == 0 {
				have.Status.Programmed = nil // as it is sent
			}
			if len(status.EgressIPs)+len(status.Awaiting) > 0 {
				have.Status.Programmed = append(have.Status.Programmed, status)
			}
			_, err = h.api.EgressIPV1().EgressIPs().Update(ctx, have, metav1.UpdateOptions{})
			return err
		})
	}
}

func (h *history) anyPod(namespace, name string) {
	key := namespace + "/" + name
	if !h.there[key] {
		h.say("pod %s", key)
		h.there[key] = true
		addr := "10.244.2." + fmt.Sprint(3+len(namespace)+2*int(name[4]-'0')) + "/24"
		h.port(namespace, name, fmt.Sprint("uid", h.born), addr)
		h.must(func(ctx context.Context) error {
			_, err := h.kube.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint("uid", h.born))},
				Spec:       corev1.PodSpec{NodeName: other},
			}, metav1.CreateOptions{})
			return err
		})
		return
	}
	h.say("no pod %s", key)
	h.there[key] = false
	h.must(func(ctx context.Context) error {
		return h.kube.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
	h.port(namespace, name, "")
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

// restart starts another process: the bridge and the chains start with the state of the new
// process only, and the rest of the kernel is swept when all EgressIPs are reconciled.
func (h *history) restart() {
	h.stop()
	h.flows.Flows, h.chains = hostfake.NewFlows(), hostfake.NewChains(egressip.Chains(topology.Families))
	h.breakable()
	h.stop = h.start()
	for h.sweep(context.Background()) != nil { // like the caller, until it succeeds
		<-time.After(time.Second)
	}
}

// breakable makes the controller's writes fail now and then.
func (h *history) breakable() {
	h.flows.Fail = func(string) error { return h.broke() }
	h.chains.Fail = func(string) error { return h.broke() }
	h.addrs.Fail = func(string, host.Address) error { return h.broke() }
	h.routes.Fail = func(string, host.Route) error { return h.broke() }
	h.ipRules.Fail = func(string, host.IPRule) error { return h.broke() }
	h.settings.Fail = func(string, string) error { return h.broke() }
}

// state returns the final state in the kernel, on the bridge, and in the API.
func (h *history) state() string {
	var out strings.Builder
	out.WriteString(h.dump())
	for _, flow := range slices.Sorted(strings.SplitSeq(h.flows.Dump(), "\n")) { // their order does not matter
		out.WriteString(flow + "\n")
	}
	for _, name := range []string{"a", "b"} {
		if h.there[name] {
			e := h.get(name)
			fmt.Fprintf(&out, "%s: items %v words %v\n", name, e.Status.Items, h.words(name))
		}
	}
	return out.String() + "record " + h.recorded() + "\n"
}

// TestRandomOrders: whatever happens in whatever order, with a failing API server, kernel and
// bridge, lost watches and restarts in between, the final state equals the one that a
// node with an empty kernel makes of the last objects, and a restarted node
// writes nothing.
func TestRandomOrders(t *testing.T) {
	seeds.Each(t, 8, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			h := &history{world: newWorld(t), rng: rng, there: map[string]bool{}, broken: rand.New(rand.NewPCG(rng.Uint64(), 0))}
			h.node(other, ".0.4", "00:04")
			for _, name := range []string{"red", "blue"} {
				space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": name}}}
				if err := h.kube.Tracker().Add(space); err != nil {
					t.Fatal(err)
				}
			}
			h.faults = fakeapi.NewFaults(rng)
			h.faults.Inject(h.kube)
			h.faults.Inject(h.api)
			h.breakable()
			h.stop = h.start()
			assignment := []float64{0, 0.05, 0.1}[rng.IntN(3)] // of failures in each of many steps
			h.faults.Set(assignment)
			h.world.mu.Lock()
			h.share = assignment
			h.world.mu.Unlock()
			for range 60 {
				h.event()
				h.trouble()
			}
			h.faults.Set(0)
			h.world.mu.Lock()
			h.share = 0
			h.world.mu.Unlock()
			for range 4 { // the nodes wait for each other
				fakeapi.Settle()
				h.otherActs()
			}
			fakeapi.Settle()
			fail := func(format string, args ...any) {
				t.Errorf("%s\nhistory:\n%s", fmt.Sprintf(format, args...), strings.Join(h.events, "\n"))
			}
			end, writes := h.state(), h.writes()-h.chains.Writes()
			h.did()
			fakeapi.Settle()
			if did := h.did(); len(did) > 0 {
				fail("not at rest: %q", did)
			}
			h.restart()
			fakeapi.Settle()
			said := slices.DeleteFunc(h.did(), func(what string) bool { return what == "flows" })
			if got := h.state(); got != end || len(said) > 0 || h.writes()-h.chains.Writes() != writes {
				fail("a restart did %q and made %d writes of\n%s\nthis:\n%s", said, h.writes()-h.chains.Writes()-writes, end, got)
			}
			h.addrs = hostfake.NewKernel(map[host.Address]host.AddressUse{})
			h.routes = hostfake.NewKernel(map[host.Route]host.Hop{})
			h.ipRules = hostfake.NewKernel(map[host.IPRule]struct{}{})
			h.settings = hostfake.NewKernel(map[string]string{})
			h.restart()
			fakeapi.Settle()
			if got := h.state(); got != end {
				fail("the end:\n%s\nfrom scratch:\n%s", end, got)
			}
		})
	})
}

// TestMadeAnew: an EgressIP that was recreated while no process was running does not get the addresses
// of the previous one, and nothing of that stays in the kernel.
func TestMadeAnew(t *testing.T) {
	w := newWorld(t, object("prod", []string{"10.10.10.5"}, []string{"10.10.10.5 " + self}))
	w.start()
	w.saysEventually("prod", self+" 10.10.10.5")
	w.eventually("the address", func() bool { return strings.Contains(w.dump(), "dummy 10.10.10.5/32") })
	w.meanwhile("prod", func(e *v1.EgressIP) {
		e.UID, e.Status = "another", v1.EgressIPStatus{}
	})
	w.eventually("all of the one before to go", func() bool { return !strings.Contains(w.dump(), "10.10.10.5") })
}
