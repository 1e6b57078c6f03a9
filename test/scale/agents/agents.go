// Package agents simulates the kubelets, the ovn-controllers and the node agents of
// all nodes: pods with addresses run at once, chassis confirm each nb_cfg at once, and
// nodes acknowledge their assignments at once. A lost node does none
// of this.
//
// Acknowledgements are created by the packages of the real node agents, so that changes of the
// protocol between masters and nodes also apply here.
package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	routeinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/informers/externalversions"
	ipinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
	serviceinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbraw"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/test/scale/load"
	"github.com/ovnkube/ovnkube/test/scale/plane"
)

// Agents are the agents of all nodes.
type Agents struct {
	clients load.Clients
	core    informers.SharedInformerFactory
	service serviceinformers.SharedInformerFactory
	ip      ipinformers.SharedInformerFactory
	route   routeinformers.SharedInformerFactory
	reader  *snapshot.Reader
	queues  []*queue.Controller

	running *errgroup.Group
	ended   <-chan struct{} // closed after stop
	stop    context.CancelFunc

	raised chan struct{} // chassis have an nb_cfg to confirm

	mu   sync.Mutex
	lost map[string]bool
	sb   *ovsdbraw.Conn
	cfg  int // the last nb_cfg
}

// Start runs the agents until Close. They notice added and removed nodes by themselves; AddChassis adds the
// nodes' chassis.
func Start(ctx context.Context, clients load.Clients) (*Agents, error) {
	a := &Agents{
		clients: clients,
		core:    kube.NewInformers(clients.Kube),
		service: serviceinformers.NewSharedInformerFactory(clients.Services, 0),
		ip:      ipinformers.NewSharedInformerFactory(clients.IPs, 0),
		route:   routeinformers.NewSharedInformerFactory(clients.Routes, 0),
		raised:  make(chan struct{}, 1),
		lost:    map[string]bool{},
	}
	a.core.Core().V1().Nodes().Informer()
	a.route.AdminPolicyBasedRoute().V1().AdminPolicyBasedExternalRoutes().Informer()
	var err error
	a.reader, err = snapshot.NewReader(snapshot.Informers{
		EgressServices: a.service.EgressService().V1().EgressServices(),
		Services:       a.core.Core().V1().Services(),
		EndpointSlices: a.core.Discovery().V1().EndpointSlices(),
		Pods:           a.core.Core().V1().Pods(),
	}, []netip.Prefix{load.PodRange}, topology.GatewayShared, nil)
	if err != nil {
		return nil, err
	}
	if err := a.build(); err != nil {
		return nil, err
	}
	ctx, a.stop = context.WithCancel(ctx)
	a.running, ctx = errgroup.WithContext(ctx)
	a.ended = ctx.Done()
	for _, factory := range a.factories() {
		factory.Start(ctx.Done())
	}
	for _, factory := range a.factories() {
		for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
			if !ok {
				return nil, fmt.Errorf("read %s", kind)
			}
		}
	}
	for _, q := range a.queues {
		a.running.Go(func() error { return q.Run(ctx, workers) })
	}
	return a, nil
}

// workers is how many acknowledgements of a kind are written concurrently.
const workers = 8

// Close ends the agents.
func (a *Agents) Close() error {
	a.stop()
	err := a.running.Wait()
	for _, factory := range a.factories() {
		factory.Shutdown()
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// SetLost marks a node as lost, or as back. The chassis of a node that is back confirms the nb_cfg that it has missed, as
// ovn-controller does.
func (a *Agents) SetLost(node string, lost bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if lost {
		a.lost[node] = true
	} else {
		delete(a.lost, node)
		a.signal()
	}
}

// signal makes the chassis confirm the last nb_cfg.
func (a *Agents) signal() {
	select {
	case a.raised <- struct{}{}:
	default: // they are about to
	}
}

func (a *Agents) isLost(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost[node]
}

// Confirm creates the nodes' rows in the southbound database, and makes the nodes confirm each
// nb_cfg from then on.
func (a *Agents) Confirm(ctx context.Context, p *plane.Plane, nodes int) error {
	c, err := p.Dial(ctx, plane.Southbound, func(params json.RawMessage) {
		if n, ok := newCfg(params); ok {
			a.mu.Lock()
			a.cfg = n
			a.mu.Unlock()
			a.signal()
		}
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.sb, a.cfg = c, 0
	a.mu.Unlock()
	for i := range nodes {
		if err := a.AddChassis(ctx, i); err != nil {
			return err
		}
	}
	a.running.Go(func() error {
		defer c.Close()
		for {
			select {
			case <-a.raised:
				if err := a.confirm(ctx, c); err != nil && ctx.Err() == nil {
					return fmt.Errorf("confirm nb_cfg: %w", err)
				}
			case <-c.Closed():
				return nil
			case <-a.ended:
				return nil
			}
		}
	})
	_, err = c.Call(ctx, "monitor", plane.Southbound, "cfg", map[string]any{"SB_Global": map[string]any{"columns": []string{"nb_cfg"}}})
	return err
}

// newCfg returns the new nb_cfg in an update.
func newCfg(params json.RawMessage) (int, bool) {
	var update []json.RawMessage
	var tables struct {
		Global map[string]struct {
			New struct {
				Cfg int `json:"nb_cfg"`
			}
		} `json:"SB_Global"`
	}
	if json.Unmarshal(params, &update) != nil || len(update) < 2 || json.Unmarshal(update[1], &tables) != nil {
		return 0, false
	}
	for _, row := range tables.Global {
		return row.New.Cfg, true
	}
	return 0, false
}

// confirm makes all chassis, except those of lost nodes, confirm the last nb_cfg.
func (a *Agents) confirm(ctx context.Context, c *ovsdbraw.Conn) error {
	where := []any{}
	a.mu.Lock()
	cfg := a.cfg
	for name := range a.lost {
		where = append(where, []any{"name", "!=", a.chassis(name)})
	}
	a.mu.Unlock()
	_, err := c.Transact(ctx, plane.Southbound, ovsdbraw.Op{"op": "update", "table": "Chassis_Private", "where": where, "row": ovsdbraw.Row{"nb_cfg": cfg}})
	return err
}

func (a *Agents) chassis(node string) string {
	n, err := a.core.Core().V1().Nodes().Lister().Get(node)
	if err != nil {
		return ""
	}
	return n.Annotations[kube.AnnotationChassisID]
}

// AddChassis registers the chassis of a node.
func (a *Agents) AddChassis(ctx context.Context, i int) error {
	a.mu.Lock()
	c, cfg := a.sb, a.cfg
	a.mu.Unlock()
	n := load.Node(i)
	ip := n.Primary[0].Addr().String()
	_, err := c.Transact(ctx, plane.Southbound,
		ovsdbraw.Op{"op": "insert", "table": "Encap", "uuid-name": "encap", "row": ovsdbraw.Row{"type": "geneve", "ip": ip, "chassis_name": n.Chassis}},
		ovsdbraw.Op{"op": "insert", "table": "Chassis", "uuid-name": "chassis", "row": ovsdbraw.Row{"name": n.Chassis, "hostname": n.Name, "encaps": []any{"named-uuid", "encap"}}},
		ovsdbraw.Op{"op": "insert", "table": "Chassis_Private", "row": ovsdbraw.Row{"name": n.Chassis, "chassis": []any{"named-uuid", "chassis"}, "nb_cfg": cfg}})
	if err != nil {
		return fmt.Errorf("register chassis of %s: %w", n.Name, err)
	}
	return nil
}

// build creates the queues of objects to acknowledge.
func (a *Agents) build() error {
	pods := queue.New("pods", a.runPod)
	services := queue.New("egress-services", a.acknowledgeService)
	ips := queue.New("egress-ips", a.acknowledgeIP)
	a.queues = []*queue.Controller{pods, services, ips}
	services.Seed(a.reader.Keys)
	return errors.Join(
		pods.Watch(a.core.Core().V1().Pods().Informer(), func(_, new any) []string {
			if p, ok := new.(*corev1.Pod); ok && starts(p) {
				return []string{kube.PodKey(p)}
			}
			return nil
		}),
		a.reader.Watch(services, func(_ snapshot.Kind, key string) []string { return []string{key} }),
		ips.Watch(a.ip.EgressIP().V1().EgressIPs().Informer(), func(_, new any) []string {
			if e, ok := new.(*egressipv1.EgressIP); ok {
				return []string{e.Name}
			}
			return nil
		}),
	)
}

type factory interface {
	Start(stop <-chan struct{})
	Shutdown()
	WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool
}

func (a *Agents) factories() []factory { return []factory{a.core, a.service, a.ip, a.route} }

// PodsOf returns the pods of a namespace, by name.
func (a *Agents) PodsOf(namespace string) []*corev1.Pod {
	objs, _ := a.core.Core().V1().Pods().Informer().GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	var pods []*corev1.Pod
	for _, obj := range objs {
		pods = append(pods, obj.(*corev1.Pod))
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// ignorable reports whether an error is explained by a change that the informers have not received yet.
func ignorable(err error) bool {
	return err == nil || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err)
}

// Service returns an EgressService, or nil if there is none.
func (a *Agents) Service(key string) *egressservicev1.EgressService {
	eg, _ := a.reader.Object(key)
	return eg
}
