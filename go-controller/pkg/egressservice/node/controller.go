package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// workers is the number of EgressServices reconciled at the same time. They mostly wait: the chain
// driver writes all waiting changes at once.
const workers = 256

// Linger is how long rules outlive their use: other nodes take some time to
// stop sending traffic here after the policies have changed.
const Linger = 5 * time.Second

// Deps are the dependencies of the controller.
type Deps struct {
	// Node is the name of this node.
	Node string
	// Nodes includes at least this node, while it is in the cluster. nil: it always is.
	Nodes coreinformers.NodeInformer
	// Egress writes acknowledgements.
	Egress versioned.Interface
	// The caller starts Informers after New.
	Informers snapshot.Informers
	// Chains manages the chains that egressservice.Chains declares.
	Chains host.ChainWriter
	// IPRules manages the ip rules of this node.
	IPRules host.Writer[host.IPRule, struct{}]
	// Tables finds the routing tables of networks.
	Tables Tables
	// Flush deletes the connections whose translation is stale; see
	// conntrack.FlushTranslated. Once a translation has ended, ended contains
	// the addresses that this node no longer translates to.
	Flush func(ctx context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error
	// FlushLed deletes the connections of pods that have the address of another link than those by which they
	// leave; see conntrack.FlushFormerLinks.
	FlushLed func(ctx context.Context, pods map[netip.Addr]bool) error
	// OnApplied registers a function that is called whenever the master's changes to the
	// northbound database have taken effect on this node. Settle waits until no packet uses flows of
	// Open vSwitch that were replaced before the call.
	OnApplied func(func())
	Settle    func(ctx context.Context) error
	// Linger replaces the constant if it is not 0.
	Linger time.Duration
	// ClusterSubnets are the pod subnets of the cluster.
	ClusterSubnets []netip.Prefix
	// Mode is the gateway mode of the cluster.
	Mode topology.GatewayMode
	// EgressIPs says that there may be EgressIPs, whose ip rules would route pods of an
	// EgressService elsewhere.
	EgressIPs bool
	// Neighbor returns the addresses of another node on the primary network of this one, at most one for each
	// family. nil: there are none.
	Neighbor func(node string) []netip.Addr
	// NodeLocal are ranges that pods reach by the usual routes of their own node.
	NodeLocal []netip.Prefix
}

// Controller handles the EgressServices whose host is this node.
type Controller struct {
	deps   Deps
	reader *snapshot.Reader
	queue  *queue.Controller

	mu sync.Mutex
	// contributed is the kernel state of each key that contributes
	// something.
	contributed map[string]contribution
	// taken are the keys that were taken over, while the status does not show it yet.
	taken    map[string]bool
	networks map[string]table // by network, the result of the last lookup
	// settled are the translations of the keys whose traffic is led here, for which connections
	// with other translations have been forgotten since.
	settled map[string]egressservice.Translations
	// users are the keys whose contributions have rules for a pod, by pod.
	users map[netip.Addr][]string
	// awaiting are the keys that wait until another key withdraws such rules, by that key.
	awaiting map[string][]string
	// unconfirmed: the policies that lead traffic here may not be in force on this node yet.
	unconfirmed queue.Unconfirmed
	// elsewhere are the pods of this node, by key, that leave by another node.
	elsewhere map[string][]netip.Addr
	// others are the nodes that packets of unknown connections are handed on to, by key.
	others map[string]otherHost
	// copies writes the rules for handing on packets.
	copies  host.Optional
	leaving *leaving
	flush   *flusher
}

// contribution is the kernel state of one EgressService.
type contribution struct {
	translations egressservice.Translations
	ipRules      map[host.IPRule]struct{}
	replies      host.Rules // traffic exempt from the ip rules
	incomplete   bool       // a write failed half-way
	// pending are the translations that an incomplete write adds: the kernel may already make them.
	pending egressservice.Translations
	// untrusted are the pods whose connections must still be forgotten if incomplete.
	untrusted map[netip.Addr]bool
}

func (c contribution) empty() bool { return len(c.translations)+len(c.ipRules) == 0 }

func (c contribution) equal(o contribution) bool {
	return !c.incomplete && !o.incomplete && maps.Equal(c.translations, o.translations) && maps.Equal(c.ipRules, o.ipRules) &&
		maps.EqualFunc(c.replies, o.replies, slices.Equal)
}

// New returns the controller.
func New(deps Deps) (*Controller, error) {
	if deps.Linger == 0 {
		deps.Linger = Linger
	}
	if deps.Neighbor == nil {
		deps.Neighbor = func(string) []netip.Addr { return nil }
	}
	reader, err := snapshot.NewReader(deps.Informers, deps.ClusterSubnets, deps.Mode, nil)
	if err != nil {
		return nil, err
	}
	c := &Controller{deps: deps, reader: reader, contributed: map[string]contribution{},
		taken: map[string]bool{}, networks: map[string]table{}, settled: map[string]egressservice.Translations{},
		users: map[netip.Addr][]string{}, awaiting: map[string][]string{}, elsewhere: map[string][]netip.Addr{},
		others: map[string]otherHost{}}
	c.flush = newFlusher(deps.Flush, c.flushLed, c.inUse)
	c.leaving = newLeaving(deps, c.flush)
	c.queue = queue.New("egressservice-node", c.reconcile)
	deps.OnApplied(c.applied)
	c.queue.Seed(func() []string {
		if err := reader.Prime(); err != nil {
			klog.ErrorS(err, "Cannot read all EgressServices at first")
		}
		return reader.Keys()
	})
	return c, errors.Join(
		c.watchSelf(),
		reader.Watch(c.queue, func(_ snapshot.Kind, key string) []string { return []string{key} }),
		reader.WatchInside(c.queue, func() []string { return slices.Concat(slices.Collect(maps.Values(c.keysOf()))...) }),
	)
}

// Run runs the controller until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	defer c.reader.Close()
	var wg sync.WaitGroup
	wg.Go(func() { c.leaving.run(ctx) })
	wg.Go(func() { c.watchTables(ctx) })
	defer wg.Wait()
	return c.queue.Run(ctx, workers)
}

// Attempted is closed when every EgressService that existed at the start has been
// attempted once.
func (c *Controller) Attempted() <-chan struct{} { return c.queue.Attempted() }

// Synced is closed when the kernel state of every EgressService that existed
// at the start has been written: from then on the chains and ip rules may be swept.
func (c *Controller) Synced() <-chan struct{} { return c.queue.Synced() }

// reconcile programs this node's rules for one EgressService, and then acknowledges them.
func (c *Controller) reconcile(ctx context.Context, key string) error {
	if key == takeoversKey {
		return c.finishTakeovers(ctx)
	}
	eg, err := c.reader.Object(key)
	if err != nil {
		return err
	}
	var (
		s       egressservice.Service
		want    contribution
		problem string
	)
	if eg == nil {
		s.Key = key
		c.queue.Enqueue(c.reader.Forget(key)...)
	} else {
		if s, err = c.decode(ctx, eg); err != nil {
			return err
		}
		s = c.withoutContested(s)
		if want, problem, err = c.want(c.role(s)); err != nil {
			return err
		}
	}
	if err := c.program(ctx, key, want, c.takesOver(s)); err != nil {
		return err
	}
	if err := c.keepIn(ctx, s); err != nil {
		return err
	}
	if err := c.finishTakeover(ctx, s, want.translations); err != nil {
		return err
	}
	if eg != nil {
		c.queue.MarkSynced(key)
		err = c.acknowledge(ctx, eg, s, problem)
	}
	return errors.Join(err, c.handOn(ctx, s, want.translations)) // nobody waits for the latter
}

// decode reads an EgressService, with the pods of other nodes if this node needs them.
func (c *Controller) decode(ctx context.Context, eg *v1.EgressService) (egressservice.Service, error) {
	known := c.reader.Knows(eg)
	s, others, err := c.reader.Decode(eg)
	if err != nil {
		return s, err
	}
	c.queue.Enqueue(others...)
	if !c.needsAll(s) {
		c.reader.Release(eg)
		return s, nil
	}
	if others, err = c.reader.Know(ctx, eg); err != nil {
		return s, err
	}
	c.queue.Enqueue(others...)
	if known {
		return s, nil
	}
	s, others, err = c.reader.Decode(eg)
	c.queue.Enqueue(others...)
	return s, err
}

// needsAll reports whether this node needs an EgressService's pods on other nodes: as the
// host, which translates for them, or for replies of pods to which its kernel has sent requests.
func (c *Controller) needsAll(s egressservice.Service) bool {
	return c.role(s).Host == c.deps.Node || len(s.DirectPorts) > 0
}

// role returns s with the host from this node's point of view: until
// another node has taken over, the previous host continues. If no node's acknowledgement counts, there
// is no previous host: no traffic is led to any.
func (c *Controller) role(s egressservice.Service) egressservice.Service {
	if s.Host == c.deps.Node || s.Host == "" || s.Host == v1.HostAll || s.Ack.Host == "" {
		return s
	}
	if s.Ack.Host == c.deps.Node || !s.Done && c.translates(s.Key) {
		s.Host = c.deps.Node
	}
	return s
}

// translates reports whether this node translates the pods of an EgressService, which only its host
// does. A node also contributes ip rules for its own pods if every node serves.
func (c *Controller) translates(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.contributed[key].translations) > 0
}

// takesOver reports whether this node is the host and was not before: its connection tracking
// entries from an earlier time as host are outdated.
func (c *Controller) takesOver(s egressservice.Service) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.Host != c.deps.Node || s.Ack.Host == c.deps.Node {
		delete(c.taken, s.Key)
		return false
	}
	return !c.taken[s.Key]
}

// want plans what this node contributes, and describes any problem.
func (c *Controller) want(s egressservice.Service) (want contribution, problem string, err error) {
	want.translations = egressservice.NodeState(s, c.deps.Node)
	if c.deps.EgressIPs {
		want.ipRules = egressservice.MainTableRules(want.translations)
	}
	// Whether this node uses the network does not depend on its routing table.
	if len(egressservice.IPRules(s, c.deps.Node, unnamed, nil, nil)) == 0 {
		return want, "", nil
	}
	t := c.lookup(s.Network)
	if t.problem != "" {
		if !egressservice.Networked(s, c.deps.Node) {
			return want, "", nil // the network is not expected on this node
		}
		return want, t.problem, nil
	}
	inside := slices.Concat(c.reader.Inside(), c.deps.NodeLocal)
	rules := egressservice.IPRules(s, c.deps.Node, t.RoutingTable, c.reader.Cluster(), inside)
	maps.Copy(rules, want.ipRules)
	want.ipRules, want.replies = rules, egressservice.NodeReplyRules(s, c.deps.Node)
	if egressservice.LacksRoute(s, c.deps.Node, t.RoutingTable) {
		problem = fmt.Sprintf("the routing table of network %s has no %s route", s.Network, t.Without)
	}
	return want, problem, nil
}

// program writes the wanted kernel state of key. State that is no longer wanted
// lingers, with a lower precedence than all wanted state.
func (c *Controller) program(ctx context.Context, key string, want contribution, takeover bool) error {
	c.mu.Lock()
	have, known := c.contributed[key]
	c.mu.Unlock()
	// Most nodes are not involved in most EgressServices, and even
	// comparing means reading the tables; the owner of the drivers repairs
	// changes made by others.
	if !known && want.empty() || known && have.equal(want) && !takeover {
		klog.V(4).InfoS("Rules are up to date", "egressService", key)
		return nil
	}
	untrusted, err := c.leaving.add(ctx, key, have, want)
	maps.Copy(untrusted, have.untrusted)
	c.note(key, contribution{translations: have.translations, ipRules: have.ipRules, replies: have.replies,
		incomplete: true, pending: want.translations, untrusted: untrusted})
	if err != nil {
		return err
	}
	chains := want.translations.Rules(key)
	maps.Copy(chains, want.replies) // they use their own chains
	if err := c.deps.Chains.Apply(ctx, egressservice.Contributor(key), chains); err != nil {
		return fmt.Errorf("apply rules of EgressService %s: %w", key, err)
	}
	if have.incomplete || len(have.ipRules)+len(want.ipRules) > 0 {
		if err := c.deps.IPRules.Apply(ctx, egressservice.Contributor(key), want.ipRules); err != nil {
			return fmt.Errorf("apply ip rules of EgressService %s: %w", key, err)
		}
	}
	if err := c.leaving.dropReplaced(ctx, want); err != nil {
		return err
	}
	if err := c.flushReplaced(ctx, have, want, untrusted, takeover); err != nil {
		return fmt.Errorf("flush connections of EgressService %s: %w", key, err)
	}
	c.note(key, want)
	if takeover {
		c.mu.Lock()
		c.taken[key] = true
		c.mu.Unlock()
	}
	klog.V(2).InfoS("Rules written", "egressService", key, "translations", len(want.translations), "ipRules", len(want.ipRules))
	return nil
}

// flushReplaced deletes connections opened earlier, which would keep their
// previous translation, or none.
func (c *Controller) flushReplaced(ctx context.Context, have, want contribution, untrusted map[netip.Addr]bool, takeover bool) error {
	fresh := egressservice.Translations{}
	for addr, to := range want.translations {
		if have.incomplete || have.translations[addr] != to {
			fresh[addr] = to
		}
	}
	if takeover {
		untrusted = map[netip.Addr]bool{}
		for addr := range want.translations {
			untrusted[addr] = true
		}
	}
	return c.flush.replaced(ctx, fresh, untrusted, newlyLed(have, want))
}

// note stores the kernel state of key.
func (c *Controller) note(key string, has contribution) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.contributed[key]
	if has.empty() && !has.incomplete {
		delete(c.contributed, key)
	} else {
		c.contributed[key] = has
	}
	c.reindex(key, had, has)
}

// keysOf returns the keys of the EgressServices with a network, by network.
func (c *Controller) keysOf() map[string][]string {
	objs, err := c.reader.Objects()
	if err != nil {
		klog.ErrorS(err, "Cannot list EgressServices")
		return nil
	}
	keys := map[string][]string{}
	for _, eg := range objs {
		if eg.Spec.Network != "" {
			keys[eg.Spec.Network] = append(keys[eg.Spec.Network], eg.Namespace+"/"+eg.Name)
		}
	}
	for _, k := range keys {
		slices.Sort(k)
	}
	return keys
}
