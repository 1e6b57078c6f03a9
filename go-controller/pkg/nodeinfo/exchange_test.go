package nodeinfo

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// moved is the i-th node with the addresses that nodes v4 and v6 have at the beginning.
func moved(i, v4, v6 int) map[string]string {
	n := node(i)
	addrs := []netip.Prefix{node(v4).Primary[0], node(v6).Primary[1]}
	n.Primary, n.Gateway.Addrs, n.Host = addrs, addrs, slices.Concat(addrs, n.Host[2:])
	return kube.FormatNode(n)
}

// addresses are the annotations that have the addresses of a host.
var addresses = []string{kube.AnnotationL3Gateway, kube.AnnotationHostAddresses, kube.AnnotationPrimaryIfAddr}

// move writes the annotations of a node that have its addresses, one after the other.
func (w *world) move(i int, to map[string]string) {
	for _, name := range addresses {
		w.set(i, name, to[name], 0)
	}
}

// collides returns which effective annotation of a node has what another node has.
func (w *world) collides() error {
	for _, s := range w.states {
		for name := range s.effective {
			if err := w.taken(s, name, s.node); err != nil {
				return fmt.Errorf("%s of %s: %w", name, s.name, err)
			}
		}
	}
	return nil
}

// exchanges are which addresses each node has afterwards: those of which nodes, by family.
var exchanges = map[string][]struct{ v4, v6 int }{
	"two nodes":                      {{2, 2}, {1, 1}},
	"two nodes, IPv4":                {{2, 1}, {1, 2}},
	"two nodes, IPv6":                {{1, 2}, {2, 1}},
	"three nodes":                    {{2, 2}, {3, 3}, {1, 1}},
	"three nodes, the other way":     {{3, 3}, {1, 1}, {2, 2}},
	"three nodes, by family":         {{2, 3}, {3, 1}, {1, 2}},
	"a node follows two that do":     {{2, 2}, {1, 1}, {9, 9}, {3, 3}},
	"a node follows one that is new": {{4, 4}, {1, 1}, {2, 2}, {9, 9}},
}

// TestNodesExchangeAddresses: nodes that get each other's addresses are refused only until the last of them has written
// its own for as long as every value has to be there, also by a master that starts then.
func TestNodesExchangeAddresses(t *testing.T) {
	for what, ways := range exchanges {
		check := func(w *world, by string) {
			t.Helper()
			for i, way := range ways {
				if want := moved(i+1, way.v4, way.v6); !maps.Equal(w.effective(i+1), want) {
					t.Errorf("%s, %s: in force of n%d are %v, refused %v", what, by, i+1, w.effective(i+1), w.refusals())
				}
			}
			if len(w.refusals()) > 0 || w.pending() {
				t.Errorf("%s, %s: refused %v, pending %v", what, by, w.refusals(), w.pending())
			}
		}
		for _, apart := range []time.Duration{0, time.Hour} {
			w := begin(t, ByMaster(), len(ways))
			for i, way := range ways {
				w.now = w.now.Add(apart)
				w.move(i+1, moved(i+1, way.v4, way.v6))
			}
			w.now = w.now.Add(settleAgent - 1)
			w.resolve(w.now, false)
			if err := w.collides(); err != nil || maps.Equal(w.effective(len(ways)), moved(len(ways), ways[len(ways)-1].v4, ways[len(ways)-1].v6)) {
				t.Errorf("%s, %s apart: too early, %v", what, apart, err)
			}
			w.now = w.now.Add(1)
			w.resolve(w.now, false)
			check(w, fmt.Sprint(apart, " apart"))
		}
		again := &world{now: start, resolver: newResolver(cluster, ByMaster(), Settle)}
		for i, way := range ways {
			recalled := kube.FormatNode(node(i + 1))
			for _, name := range addresses[1:] {
				delete(recalled, name) // the databases do not have these
			}
			again.add(object(i+1, moved(i+1, way.v4, way.v6)), recalled)
		}
		again.resolve(again.now, true)
		check(again, "recalled")
	}
}

// TestNodesExchangeWhatTheyHave: the same for a chassis and for MAC addresses.
func TestNodesExchangeWhatTheyHave(t *testing.T) {
	w := begin(t, ByMaster(), 2)
	for i := 1; i <= 2; i++ {
		n := node(i)
		n.Chassis, n.Gateway.MAC = node(3-i).Chassis, node(3-i).Gateway.MAC
		for _, name := range []string{kube.AnnotationChassisID, kube.AnnotationL3Gateway} {
			w.set(i, name, kube.FormatNode(n)[name], 0)
		}
	}
	w.now = w.now.Add(settleAgent)
	w.resolve(w.now, false)
	for i := 1; i <= 2; i++ {
		if n, other := w.states[fmt.Sprint("n", i)].node, node(3-i); n.Chassis != other.Chassis || n.Gateway.MAC != other.Gateway.MAC {
			t.Errorf("n%d has chassis %s and MAC address %s, refused %v", i, n.Chassis, n.Gateway.MAC, w.refusals())
		}
	}
}

// thefts are what each of some nodes claims, of which n2 and n3 keep what they have.
var thefts = map[string]func(w *world){
	"a value that still claims it": func(w *world) { w.move(1, moved(1, 2, 2)) },
	"an exchange with one family":  func(w *world) { w.move(1, moved(1, 2, 2)); w.move(2, moved(2, 1, 2)) },
	"a rotation without the last":  func(w *world) { w.move(1, moved(1, 2, 2)); w.move(2, moved(2, 3, 3)) },
	"two that want the same":       func(w *world) { w.move(1, moved(1, 2, 2)); w.move(2, moved(2, 3, 3)); w.move(4, moved(4, 3, 3)) },
	"a value that is invalid":      func(w *world) { w.move(1, moved(1, 2, 2)); w.set(2, kube.AnnotationL3Gateway, "{", 0) },
	"one annotation that still claims it": func(w *world) {
		w.move(1, moved(1, 2, 2))
		w.move(2, moved(2, 1, 1))
		w.set(2, kube.AnnotationPrimaryIfAddr, kube.FormatNode(node(2))[kube.AnnotationPrimaryIfAddr], 0)
	},
	"for a moment": func(w *world) {
		w.move(1, moved(1, 2, 2))
		w.set(1, kube.AnnotationHostAddresses, w.objs["n1"].Annotations[kube.AnnotationHostAddresses], time.Hour)
		w.move(2, moved(2, 1, 1))
		w.now = w.now.Add(settleAgent - 1)
		w.move(2, kube.FormatNode(node(2)))
	},
}

// TestNobodyTakesWhatIsClaimed: what the annotations of a node still claim, or what it cannot give up for what it
// writes, stays its own, whoever claims it and in whichever order.
func TestNobodyTakesWhatIsClaimed(t *testing.T) {
	for what, steal := range thefts {
		for _, first := range []bool{false, true} {
			w := begin(t, ByMaster(), 4)
			steal(w)
			if first {
				written := w.objs
				w = &world{now: start, objs: written, resolver: newResolver(cluster, ByMaster(), Settle)}
				for i := 1; i <= 4; i++ {
					w.add(written[fmt.Sprint("n", i)], kube.FormatNode(node(i)))
				}
			}
			w.resolve(w.now, first)
			w.now = w.now.Add(time.Hour)
			w.resolve(w.now, false)
			for i := 1; i <= 4; i++ {
				if got, want := w.states[fmt.Sprint("n", i)].node.Gateway, node(i).Gateway; !slices.Equal(got.Addrs, want.Addrs) {
					t.Errorf("%s: n%d has %v, refused %v", what, i, got.Addrs, w.refusals())
				}
			}
			if err := w.collides(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if why := w.why(1, kube.AnnotationL3Gateway); !strings.Contains(why, "node n2") {
				t.Errorf("%s: the claim of n1 is refused because %q", what, why)
			}
		}
	}
}

// TestWhatIsGivenUpGoesToOne: of two nodes that wait for an address, one that leaves it gives it to the older.
func TestWhatIsGivenUpGoesToOne(t *testing.T) {
	w := begin(t, ByMaster(), 3)
	w.move(3, moved(3, 1, 1))
	w.move(2, moved(2, 1, 1))
	w.move(1, moved(1, 2, 2))
	w.now = w.now.Add(settleAgent)
	w.resolve(w.now, false)
	for i, other := range []topology.Node{node(2), node(1), node(3)} {
		if got := w.states[fmt.Sprint("n", i+1)].node.Gateway.Addrs; !slices.Equal(got, other.Gateway.Addrs) {
			t.Errorf("n%d has %v, refused %v", i+1, got, w.refusals())
		}
	}
}

// shifted returns n nodes, each of the given ones with the addresses of another node for long enough.
func shifted(t *testing.T, n int, to map[int]int) *world {
	w := begin(t, ByMaster(), n)
	w.shift(to)
	w.resolve(w.now, false)
	w.now = w.now.Add(settleAgent)
	for _, s := range w.sorted() {
		w.resolveNode(s, w.now, false)
	}
	return w
}

// shift writes the addresses of nodes: those that other nodes have at the beginning.
func (w *world) shift(to map[int]int) {
	for i, other := range to {
		o := w.objs[fmt.Sprint("n", i)]
		o.Annotations = moved(i, other, other)
		w.write(o)
	}
}

// TestExchangeIsLinear: when the addresses of many nodes have rotated, the number of comparisons grows with that of the
// nodes, not with a power of it, while one of them has not written its own and when it has.
func TestExchangeIsLinear(t *testing.T) {
	const n = 200
	to := map[int]int{}
	for i := 1; i < n; i++ {
		to[i] = i + 1
	}
	w := shifted(t, n, to)
	compared := 0
	w.compare = func(name string, n, other topology.Node) error {
		compared++
		return collision(name, n, other)
	}
	check := func(want bool, when string) {
		t.Helper()
		compared = 0

		if got := w.exchange(w.sorted()); got != want || compared > 100*n {
			t.Errorf("%s: exchanged %v after %d comparisons", when, got, compared)
		}
	}
	check(false, "without the last node")
	w.shift(map[int]int{n: 1})
	w.resolveNode(w.states[fmt.Sprint("n", n)], w.now, false)
	w.resolveNode(w.states[fmt.Sprint("n", n)], w.now.Add(settleAgent), false)
	check(true, "with the last node")
}

// TestRefusalIsLinear: no value is compared with those of all nodes, neither when nodes are seen for the first time nor
// while a value of every node is refused.
func TestRefusalIsLinear(t *testing.T) {
	const n = 200
	w := &world{now: start, objs: map[string]*corev1.Node{}, resolver: newResolver(cluster, ByMaster(), Settle)}
	compared := 0
	w.compare = func(name string, n, other topology.Node) error {
		compared++
		return collision(name, n, other)
	}
	check := func(first bool, refused int, when string) {
		t.Helper()
		compared = 0
		if w.resolve(w.now, first); len(w.refusals()) != refused || compared > 20*n {
			t.Errorf("%s: %d nodes are refused something after %d comparisons", when, len(w.refusals()), compared)
		}
	}
	for i := 1; i <= n; i++ {
		o := object(i, kube.FormatNode(node(i)))
		w.objs[o.Name] = o
		w.add(o, nil)
	}
	check(true, 0, "at the start")
	for i := 2; i <= n; i++ { // each claims something else of the first node
		claims := node(1)
		claims.Name = fmt.Sprint("n", i)
		name := kube.NodeAnnotations()[i%len(kube.NodeAnnotations())]
		o := w.objs[claims.Name]
		o.Annotations = maps.Clone(o.Annotations)
		o.Annotations[name] = kube.FormatNode(claims)[name]
		w.write(o)
	}
	w.resolve(w.now, false)
	w.now = w.now.Add(time.Hour)
	refused := len(w.refusals())
	if refused < n/2 {
		t.Fatalf("only %d nodes are refused something", refused)
	}
	check(false, refused, "of every node")
}

// TestAllExchangeAtOnce: independent exchanges take effect in one pass.
func TestAllExchangeAtOnce(t *testing.T) {
	to := map[int]int{}
	for i := 1; i <= 20; i += 2 {
		to[i], to[i+1] = i+1, i
	}
	w := shifted(t, 20, to)
	if !w.exchange(w.sorted()) {
		t.Error("nothing is exchanged")
	}
	for i, other := range to {
		if got := w.states[fmt.Sprint("n", i)].node.Gateway.Addrs; !slices.Equal(got, node(other).Gateway.Addrs) {
			t.Errorf("n%d has %v", i, got)
		}
	}
}
