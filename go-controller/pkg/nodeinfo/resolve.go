package nodeinfo

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Cluster is the configuration that annotations have to fit.
type Cluster struct {
	// NodeBits is the prefix length of the subnets that nodes get, by family.
	NodeBits map[topology.Family]int
	// Cluster, Service, Join and Masquerade are the ranges of the cluster itself.
	Cluster, Service, Join, Masquerade []netip.Prefix
}

// maxInterface is the maximum length of a network interface's name.
const maxInterface = 15

// errOwned is why a valid value does not take effect: this process owns the annotation and did not write it.
var errOwned = errors.New("is not what was assigned, which stays in force")

// resolver decides which annotations take effect. It has no clock and does no I/O.
type resolver struct {
	cluster Cluster
	// owns are the annotations that this process writes.
	owns map[string]bool
	// settleTime is how long a new value has to be there before it takes effect, by annotation.
	settleTime func(annotation string) time.Duration
	states     map[string]*state // by node name
	holders    holders
	// decided are the values that this process wants, by node; nil means that the annotation is to be absent.
	decided map[types.UID]map[string]*string
	// compare is collision, which tests count.
	compare func(name string, n, other topology.Node) error
}

func newResolver(cluster Cluster, owns []string, settleTime func(string) time.Duration) *resolver {
	r := &resolver{cluster: cluster, owns: map[string]bool{}, settleTime: settleTime,
		states: map[string]*state{}, holders: holders{}, decided: map[types.UID]map[string]*string{}, compare: collision}
	for _, name := range owns {
		r.owns[name] = true
	}
	return r
}

// decide notes what this process wants, and reports whether that is a change.
func (r *resolver) decide(node types.UID, annotations map[string]*string) bool {
	if r.decided[node] == nil {
		r.decided[node] = map[string]*string{}
	}
	changed := false
	for name, value := range annotations {
		have, known := r.decided[node][name]
		same := known && (have == nil) == (value == nil) && (have == nil || *have == *value)
		if r.owns[name] && !same {
			r.decided[node][name], changed = value, true
		}
	}
	return changed
}

// state is what is known of a node.
type state struct {
	uid       types.UID
	name      string
	created   time.Time
	written   map[string]string // as in the API; only those that are decoded
	effective map[string]string
	waiting   map[string]waiting // values that have not been there for long enough
	refused   map[string]refusal
	node      topology.Node // decoded from effective
}

type waiting struct {
	value string
	there bool
	since time.Time
}

// refusal is why a value does not take effect.
type refusal struct {
	value, why string
	since      time.Time
	// lasts means that the value has been there for as long as a valid value needs to take effect.
	lasts bool
}

// same reports whether two refusals are of the same value for the same reason.
func (f refusal) same(o refusal) bool { return f.value == o.value && f.why == o.why }

func written(n *corev1.Node) map[string]string {
	out := map[string]string{}
	for _, name := range kube.NodeAnnotations() {
		if value, ok := n.Annotations[name]; ok {
			out[name] = value
		}
	}
	return out
}

// add adds a node; recalled is what the databases have of it.
func (r *resolver) add(n *corev1.Node, recalled map[string]string) {
	s := &state{
		uid: n.UID, name: n.Name, created: n.CreationTimestamp.Time, written: written(n),
		effective: map[string]string{}, waiting: map[string]waiting{}, refused: map[string]refusal{},
		node: topology.Node{Name: n.Name},
	}
	for _, name := range slices.Sorted(maps.Keys(recalled)) {
		if next, err := r.plausible(s, name, recalled[name]); err == nil {
			s.effective[name] = recalled[name]
			r.has(s, next)
		}
	}
	r.states[n.Name] = s
}

// write notes the annotations that a node has in the API, and reports whether they have changed.
func (r *resolver) write(n *corev1.Node) bool {
	s, now := r.states[n.Name], written(n)
	if maps.Equal(s.written, now) {
		return false
	}
	s.written = now
	return true
}

// resolve decides for all nodes. It returns the time until the next waiting value has been there for long enough,
// or 0 if none is waiting. first means that nothing has taken effect in this process yet.
func (r *resolver) resolve(now time.Time, first bool) time.Duration {
	nodes := r.sorted()
	var rest time.Duration
	// What one node gives up, another may have been waiting for. A value that has taken effect does not change again
	// before the nodes write others, so this ends.
	for changed := true; changed; {
		changed, rest = false, 0
		for _, s := range nodes {
			c, left := r.resolveNode(s, now, first)
			changed = changed || c
			rest = sooner(rest, left)
		}
		changed = changed || r.exchange(nodes)
	}
	return rest
}

// sorted returns the nodes, the oldest first.
func (r *resolver) sorted() []*state {
	return slices.SortedFunc(maps.Values(r.states), func(a, b *state) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
}

// resolveNode decides for one node, given the current state of the others.
func (r *resolver) resolveNode(s *state, now time.Time, first bool) (changed bool, rest time.Duration) {
	for _, name := range kube.NodeAnnotations() {
		value, there := s.written[name]
		have, had := s.effective[name]
		if there == had && value == have {
			delete(s.waiting, name)
			delete(s.refused, name)
			continue
		}
		next, err := r.judge(s, name, value, there)
		if errors.Is(err, errOwned) && !there { // the owner restores it
			continue
		}
		since := s.since(name, value, there, now)
		if err != nil {
			delete(s.waiting, name)
			long := r.settleTime(name)
			if first { // the value may be old: a restart changes nothing
				long = 0
			}
			rest = sooner(rest, s.refuse(name, refusal{value: value, why: reason(err), since: since}, now, long))
			continue
		}
		delete(s.refused, name)
		if had && !r.owns[name] && !(first && there) {
			if left := since.Add(r.settleTime(name)).Sub(now); left > 0 {
				s.waiting[name] = waiting{value, there, since}
				rest = sooner(rest, left)
				continue
			}
		}
		delete(s.waiting, name)
		if r.has(s, next); there {
			s.effective[name] = value
		} else {
			delete(s.effective, name)
		}
		changed = true
	}
	return changed, rest
}

// replaced returns the values that an update of a node gave to annotations of this process and that do not take
// effect.
func (r *resolver) replaced(before, after *corev1.Node) map[string]refusal {
	s := r.states[after.Name]
	if s == nil || s.uid != after.UID {
		return nil
	}
	out := map[string]refusal{}
	for name := range r.owns {
		value, there := after.Annotations[name]
		was, had := before.Annotations[name]
		if !there || had && was == value || value == s.effective[name] || r.wants(s, name, value, there) {
			continue
		}
		if _, err := r.judge(s, name, value, there); err != nil {
			out[name] = refusal{value: value, why: reason(err)}
		}
	}
	return out
}

// judge returns the node with a new value of an annotation, or why that value does not take effect.
func (r *resolver) judge(s *state, name, value string, there bool) (topology.Node, error) {
	next, err := s.without(name), error(nil)
	if there {
		next, err = r.plausible(s, name, value)
	}
	if err == nil {
		err = r.permitted(s, name, value, there, next)
	}
	return next, err
}

// permitted returns why a value that is plausible does not take effect: this process has not decided it.
func (r *resolver) permitted(s *state, name, value string, there bool, next topology.Node) error {
	if r.wants(s, name, value, there) {
		return nil
	}
	if name == kube.AnnotationNodeSubnets {
		if err := r.cluster.tooLarge(next.Subnets); err != nil {
			return err
		}
	}
	if _, had := s.effective[name]; had && r.owns[name] {
		return errOwned
	}
	return nil
}

// wants reports whether a value is what this process has decided.
func (r *resolver) wants(s *state, name, value string, there bool) bool {
	want, decided := r.decided[s.uid][name]
	return decided && there == (want != nil) && (want == nil || *want == value)
}

// since returns since when a value has been there: until now it has waited or been refused.
func (s *state) since(name, value string, there bool, now time.Time) time.Time {
	if w, ok := s.waiting[name]; ok && w.value == value && w.there == there {
		return w.since
	}
	if f, ok := s.refused[name]; ok && f.value == value && there {
		return f.since
	}
	return now
}

// refuse notes that a value does not take effect, and returns how long it takes until that refusal lasts.
func (s *state) refuse(name string, f refusal, now time.Time, long time.Duration) time.Duration {
	left := f.since.Add(long).Sub(now)
	before := s.refused[name]
	f.lasts = before.lasts && before.value == f.value || left <= 0
	s.refused[name] = f
	if f.lasts {
		return 0
	}
	return left
}

// sooner returns the shorter of two waiting times, where 0 means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// without returns the node without what the given annotation says.
func (s *state) without(name string) topology.Node {
	n := topology.Node{Name: s.name}
	for other, value := range s.effective {
		if other != name {
			_ = kube.DecodeNodeAnnotation(other, value, &n) // it has been decoded before
		}
	}
	return n
}

// plausible returns the node with a value for an annotation, or why that value is invalid, does not fit the
// cluster, or belongs to another node.
func (r *resolver) plausible(s *state, name, value string) (topology.Node, error) {
	next, err := r.valid(s, name, value)
	if err == nil {
		err = r.taken(s, name, next)
	}
	return next, err
}

// valid returns the node with a value for an annotation, or why that value is invalid or does not fit the cluster.
func (r *resolver) valid(s *state, name, value string) (topology.Node, error) {
	next := s.without(name)
	if err := kube.DecodeNodeAnnotation(name, value, &next); err != nil {
		return next, err
	}
	return next, r.cluster.check(name, next)
}

// taken returns what an annotation of a node would take from another node: of several the first by name, so that the
// reason stays the same.
func (r *resolver) taken(s *state, name string, next topology.Node) error {
	var holder string
	var why error
	for other := range r.contested(next) {
		if other.name == s.name || why != nil && holder < other.name {
			continue
		}
		if err := r.compare(name, next, other.node); err != nil {
			holder, why = other.name, err
		}
	}
	return why
}

// reason returns only the reason of an error, without the names of node and annotation.
func reason(err error) string {
	var a *kube.AnnotationError
	if errors.As(err, &a) {
		return a.Err.Error()
	}
	return err.Error()
}

// check returns why an annotation does not fit the cluster.
func (c Cluster) check(name string, n topology.Node) error {
	switch name {
	case kube.AnnotationNodeSubnets:
		return c.pods(n.Subnets)
	case kube.AnnotationGatewayLRPIfAddr:
		return c.joins(n.Join)
	case kube.AnnotationPrimaryIfAddr:
		return c.outside(n.Primary)
	case kube.AnnotationManagementMAC:
		for _, p := range n.Subnets {
			if n.ManagementMAC == topology.MACOf(topology.RouterAddr(p)) {
				return fmt.Errorf("%s is the MAC address of the router of subnet %s", n.ManagementMAC, p)
			}
		}
	case kube.AnnotationL3Gateway:
		// These names are those of ports in the database and have to be unique there.
		suffix := topology.ExternalInterface("", n.Name)
		for _, id := range []string{n.Gateway.InterfaceID, n.Gateway.External.InterfaceID} {
			if bridge, ok := strings.CutSuffix(id, suffix); id != "" && (!ok || len(bridge) > maxInterface) {
				return fmt.Errorf("interface-id %s is not the name of a bridge and %s", id, suffix)
			}
		}
		if id := n.Gateway.External.InterfaceID; id != "" && id == n.Gateway.InterfaceID {
			return fmt.Errorf("interface-id and exgw-interface-id are both %s", id)
		}
		for _, p := range n.Gateway.Addrs {
			if slices.Contains(n.Gateway.NextHops, p.Addr()) {
				return fmt.Errorf("%s is an address of the node and its next hop", p.Addr())
			}
		}
		hops := make([]netip.Prefix, 0, len(n.Gateway.NextHops))
		for _, a := range n.Gateway.NextHops {
			hops = append(hops, topology.HostPrefix(a))
		}
		return c.outside(slices.Concat(n.Gateway.Addrs, hops, n.Gateway.External.Addrs))
	}
	return nil
}

// pods returns why subnets are not within the cluster's.
func (c Cluster) pods(subnets []netip.Prefix) error {
	for _, p := range subnets {
		if !slices.ContainsFunc(c.Cluster, func(r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Contains(p.Addr()) }) {
			return fmt.Errorf("%s is in no cluster subnet", p)
		}
	}
	return nil
}

// joins returns why addresses are not valid for a gateway router on the join switch.
func (c Cluster) joins(addrs []netip.Prefix) error {
	for _, p := range addrs {
		if !slices.ContainsFunc(c.Join, func(r netip.Prefix) bool {
			return r.Contains(p.Addr()) && p.Addr() != r.Masked().Addr() && p.Addr() != topology.NthAddr(r, 1)
		}) {
			return fmt.Errorf("%s is not an address of a gateway router in a join subnet", p.Addr())
		}
	}
	return nil
}

// wider is by how many bits a node's subnet may be wider than the cluster's current setting, as after a change of
// the configuration.
const wider = 4

// tooLarge returns why a subnet that a node has only from an annotation would leave too little to others.
func (c Cluster) tooLarge(subnets []netip.Prefix) error {
	for _, p := range subnets {
		if least := c.NodeBits[topology.FamilyOf(p.Addr())] - wider; p.Bits() < least {
			return fmt.Errorf("%s is too large for one node: the prefix is shorter than /%d", p, least)
		}
	}
	return nil
}

// outside returns why addresses cannot belong to a host: they are in the cluster's ranges.
func (c Cluster) outside(prefixes []netip.Prefix) error {
	for _, in := range []struct {
		name   string
		ranges []netip.Prefix
	}{{"cluster", c.Cluster}, {"service", c.Service}, {"join", c.Join}, {"masquerade", c.Masquerade}} {
		for _, r := range in.ranges {
			for _, p := range prefixes {
				if r.Contains(p.Addr()) {
					return fmt.Errorf("%s is in the %s subnet %s", p.Addr(), in.name, r)
				}
			}
		}
	}
	return nil
}

// collision returns what an annotation of a node would take from another node.
func collision(name string, n, other topology.Node) error {
	taken := func(what any) error { return fmt.Errorf("%v belongs to node %s", what, other.Name) }
	switch name {
	case kube.AnnotationNodeSubnets:
		for _, p := range n.Subnets {
			if slices.ContainsFunc(other.Subnets, p.Overlaps) {
				return taken(p)
			}
		}
	case kube.AnnotationGatewayLRPIfAddr:
		return shared(n.Join, taken, other.Join)
	case kube.AnnotationChassisID:
		if n.Chassis == other.Chassis {
			return taken(n.Chassis)
		}
	case kube.AnnotationPrimaryIfAddr:
		return shared(n.Primary, taken, other.Primary, other.Gateway.Addrs)
	case kube.AnnotationHostAddresses:
		// Addresses on other networks may be the same on all nodes, such as those of bridges of container runtimes.
		return shared(n.Host, taken, other.Primary, other.Gateway.Addrs)
	case kube.AnnotationL3Gateway:
		if n.Gateway.MAC != "" && n.Gateway.MAC == other.Gateway.MAC {
			return taken(n.Gateway.MAC)
		}
		mac := n.Gateway.External.MAC
		if mac != "" && mac == other.Gateway.External.MAC {
			return taken(mac)
		}
		if err := shared(n.Gateway.External.Addrs, taken, other.Gateway.External.Addrs, other.Primary, other.Gateway.Addrs); err != nil {
			return err
		}
		return shared(n.Gateway.Addrs, taken, other.Primary, other.Gateway.Addrs)
	}
	return nil
}

// shared returns an error for the first address of a node that also belongs to another node.
func shared(prefixes []netip.Prefix, taken func(any) error, others ...[]netip.Prefix) error {
	for _, list := range others {
		for _, o := range list {
			if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr() == o.Addr() }) {
				return taken(o.Addr())
			}
		}
	}
	return nil
}
