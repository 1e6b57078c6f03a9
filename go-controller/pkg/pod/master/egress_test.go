package master

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// steering is an Egress that has the pods whose names start with "web".
type steering struct {
	writer nb.Writer

	mu       sync.Mutex
	attached []string
	used     map[string][]netip.Addr
	onPass   func(pod string)
	unknown  bool // Pending fails
	failed   int  // how often it has failed
}

func (s *steering) Pending(p *corev1.Pod) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.unknown:
		s.failed++
		return "", errors.New("not known yet")
	case strings.HasPrefix(p.Name, "web"):
		return "egressip-prod", nil
	}
	return "", nil
}

func (s *steering) Attach(ctx context.Context, p *corev1.Pod, network topology.PodNetwork, owner nb.Owner, rows []nb.Row) (nb.Stats, error) {
	s.mu.Lock()
	s.attached = append(s.attached, p.Name+" "+network.Addrs[0].String())
	s.mu.Unlock()
	defer s.onPass(kube.PodKey(p))
	return s.writer.Apply(ctx, owner, rows)
}

func (s *steering) OnPass(f func(pod string)) { s.onPass = f }

func (s *steering) Used() map[string][]netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.used)
}

func (s *steering) Uses(pod string, addrs []netip.Addr) bool {
	used := s.Used()[pod]
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return slices.Contains(used, a) })
}

// use sets the addresses that are used for a pod.
func (s *steering) use(pod string, addrs ...netip.Addr) {
	s.mu.Lock()
	if s.used == nil {
		s.used = map[string][]netip.Addr{}
	}
	s.used[pod] = addrs
	s.mu.Unlock()
	s.onPass(pod)
}

// A pod that an egress feature has gets the pending annotation together with its addresses, in one
// patch; its port is written by the feature.
func TestMark(t *testing.T) {
	c := newCluster(t)
	egress := &steering{writer: c.nb}
	c.egress = egress
	c.addNode("n", "10.244.1.0/24")
	c.addPod("web", "n")
	c.addPod("db", "n")
	// A running pod has already been sending: the annotation would come too late.
	c.addPod("web-running", "n", func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.9"}} })
	c.start(pod.Config{})
	c.wait("all ports", func() bool { return len(c.nb.Owners(pod.Feature)) == 3 })
	c.stop()
	if got := slices.Sorted(slices.Values(c.podPatches())); !slices.Equal(got, []string{"db", "web", "web-running"}) {
		t.Errorf("patched %v, want each once", got)
	}
	for name, want := range map[string]string{"web": "egressip-prod", "db": "", "web-running": ""} {
		p := c.getPod(name)
		if got := p.Annotations[kube.AnnotationEgressPending]; got != want || p.Annotations[kube.AnnotationPodNetworks] == "" {
			t.Errorf("%s is marked %q, want %q", name, got, want)
		}
	}
	slices.Sort(egress.attached)
	if got := slices.Compact(egress.attached); len(got) != 3 || !strings.HasPrefix(got[1], "web 10.244.1.") {
		t.Errorf("attached %v", got)
	}
}

// TestMarkNotKnownYet: as long as it is not known whether an egress feature has a pod, the pod gets no addresses, since it
// could send without the feature. A running pod keeps its port.
func TestMarkNotKnownYet(t *testing.T) {
	c := newCluster(t)
	egress := &steering{writer: c.nb, unknown: true}
	c.egress = egress
	c.addNode("n", "10.244.1.0/24")
	c.addPod("web", "n")
	c.addPod("web-running", "n", func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.244.1.9"}} })
	c.start(pod.Config{})
	c.wait("the port of the running pod", func() bool { return c.port("web-running") != "-" })
	c.wait("the other pod to be retried", func() bool {
		egress.mu.Lock()
		defer egress.mu.Unlock()
		return egress.failed > 1
	})
	if p := c.getPod("web"); p.Annotations[kube.AnnotationPodNetworks] != "" || c.port("web") != "-" {
		t.Errorf("the pod has annotations %v and port %s", p.Annotations, c.port("web"))
	}
	egress.mu.Lock()
	egress.unknown = false
	egress.mu.Unlock()
	c.wait("the other port", func() bool { return c.port("web") != "-" })
	if got := c.getPod("web").Annotations[kube.AnnotationEgressPending]; got != "egressip-prod" {
		t.Errorf("marked %q", got)
	}
}

// Without such a feature, its pending annotation does not keep a pod from starting.
func TestStaleMark(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.addPod("web", "n", func(p *corev1.Pod) {
		p.Annotations = map[string]string{kube.AnnotationEgressPending: "egressip-prod"}
	})
	c.start(pod.Config{})
	c.wait("the mark to go", func() bool {
		_, ok := c.getPod("web").Annotations[kube.AnnotationEgressPending]
		return !ok && c.port("web") != "-"
	})
}

// If pods are translated individually, an address that an egress feature translates
// on the pod's node is not translated by this controller meanwhile.
func TestTranslatedByOthers(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24", "fd00:10:244:2::/64")
	c.addPod("web", "n")
	c.start(pod.Config{DisableSNATMultipleGWs: true})
	is := func(want ...string) func() bool {
		return func() bool {
			var got []string
			for _, r := range c.nb.Rows(pod.Owner("ns/web")) {
				if nat, ok := r.Model.(*nbdb.NAT); ok {
					got = append(got, nat.LogicalIP)
				}
			}
			return slices.Equal(got, want)
		}
	}
	const four, six = "10.244.1.3", "fd00:10:244:2::3"
	c.wait("both translations", is(four, six))
	for _, step := range []struct {
		rows []nb.Row
		want []string
	}{
		{[]nb.Row{{ID: "x", Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.GatewayRouter("n")},
			Model: &nbdb.NAT{Type: nbdb.NATTypeSNAT, ExternalIP: "172.18.0.33", LogicalIP: four}}}, []string{six}},
		{nil, []string{four, six}},
	} {
		if _, err := c.nb.Apply(t.Context(), nb.Owner{Feature: "egressip", Object: "ns/web"}, step.rows); err != nil {
			t.Fatal(err)
		}
		if !is(step.want...)() {
			t.Errorf("want %v:\n%s", step.want, c.nb.Dump())
		}
	}
}
