package master

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// all is the only key of the placement and labels queues.
const all = "all"

func (c *Controller) watchPlacement() error {
	c.placement.Seed(func() []string { return []string{all} })
	c.deps.Health.Subscribe(func(string) { c.placement.Enqueue(all) })
	err := c.reader.Watch(c.placement, func(kind snapshot.Kind, key string) []string {
		switch kind {
		case snapshot.Status: // usually the result of placement itself
			return nil
		case snapshot.EndpointSlice, snapshot.Pod:
			// Most changes of endpoints do not affect placement.
			if !c.reader.LocalOnly(key) {
				return nil
			}
		}
		return []string{all}
	})
	if err != nil {
		return err
	}
	return c.placement.Watch(c.deps.Nodes.Informer(), func(old, new any) []string {
		o, _ := old.(*corev1.Node)
		n, _ := new.(*corev1.Node)
		if o != nil && n != nil && c.sameCandidate(o, n) {
			return nil
		}
		return []string{all}
	})
}

// sameCandidate reports whether a node is unchanged as far as placement is concerned. The labels that this controller writes itself
// change with each host, and count only if an EgressService selects nodes by them.
func (c *Controller) sameCandidate(old, new *corev1.Node) bool {
	return (maps.Equal(old.Labels, new.Labels) || !c.byHost.Load() && maps.Equal(foreign(old.Labels), foreign(new.Labels))) &&
		kube.NodeReady(old) == kube.NodeReady(new) && kube.NodeReadyUnknown(old) == kube.NodeReadyUnknown(new) && old.Spec.Unschedulable == new.Spec.Unschedulable &&
		old.Annotations[kube.AnnotationNodeSubnets] == new.Annotations[kube.AnnotationNodeSubnets]
}

// foreign returns the labels that are not this controller's.
func foreign(all map[string]string) map[string]string {
	rest := make(map[string]string, len(all))
	for k, v := range all {
		if !isOwn(k) {
			rest[k] = v
		}
	}
	return rest
}

func isOwn(label string) bool { return strings.HasPrefix(label, kube.LabelEgressServicePrefix) }

// selectsByHost reports whether an EgressService selects nodes by the EgressServices of which they are the hosts.
func selectsByHost(eg *v1.EgressService) bool {
	for k := range eg.Spec.NodeSelector.MatchLabels {
		if isOwn(k) {
			return true
		}
	}
	return slices.ContainsFunc(eg.Spec.NodeSelector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return isOwn(r.Key) })
}

// place decides again for all EgressServices and enqueues those whose decision
// changed.
func (c *Controller) place(context.Context, string) error {
	objs, err := c.reader.Objects()
	if err != nil {
		return err
	}
	c.byHost.Store(slices.ContainsFunc(objs, selectsByHost)) // before the nodes are read: a later change of them is an event
	nodes, err := c.candidates()
	if err != nil {
		return err
	}
	services, news, err := c.decode(objs)
	if err == nil && news {
		// Meanwhile, some that were read first have lost or gained pods.
		services, _, err = c.decode(objs)
	}
	if err != nil {
		return err
	}
	c.services.Enqueue(c.decide(egressservice.Decide(nodes, services))...)
	return nil
}

// decode reads EgressServices; news reports that some of them had not claimed their
// pods yet, so that others read before them may have been given those pods.
func (c *Controller) decode(objs []*v1.EgressService) (services []egressservice.Service, news bool, err error) {
	services = make([]egressservice.Service, 0, len(objs))
	for _, eg := range objs {
		s, others, err := c.read(eg)
		if err != nil {
			return nil, false, err
		}
		news = news || len(others) > 0
		c.services.Enqueue(others...)
		// The status may not show the latest decision yet.
		if d, ok := c.decision(s.Key); ok && d.UID == s.UID {
			s.Host = d.Host
		}
		services = append(services, s)
	}
	return services, news, nil
}

// claimed enqueues EgressServices that gained or lost pods because of others.
func (c *Controller) claimed(keys []string) {
	c.services.Enqueue(keys...)
	if slices.ContainsFunc(keys, c.reader.LocalOnly) {
		c.placement.Enqueue(all) // they need nodes with their own pods
	}
}

// decide stores decisions and returns the keys whose decision changed.
func (c *Controller) decide(decisions map[string]egressservice.Decision) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var changed []string
	for key, d := range decisions {
		old, ok := c.decisions[key]
		if !ok || !old.Equal(d) {
			changed = append(changed, key)
			c.deps.Metrics.Decided(conditions.EgressService, key, d.Abandoned(old.Host)...)
		} else if d.Left == "" {
			d.Left = old.Left
			decisions[key] = d
		}
	}
	for key := range c.decisions {
		if _, ok := decisions[key]; !ok {
			changed = append(changed, key)
		}
	}
	c.decisions = decisions
	slices.Sort(changed)
	return changed
}

func (c *Controller) candidates() ([]place.Node, error) {
	list, err := c.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]place.Node, 0, len(list))
	for _, n := range list {
		node, err := c.decoded.Node(n)
		if err != nil {
			klog.V(2).InfoS("Ignoring invalid annotations of a node", "node", n.Name, "err", err)
		}
		pause := c.ackTimeouts.Pause(n.Name)
		if pause > 0 { // further timeouts may prolong the pause
			c.placement.EnqueueAfter(pause, all)
		}
		nodes = append(nodes, place.Node{Node: node, Reach: c.deps.Health.Reach(n.Name), NotAcknowledging: pause > 0})
	}
	if c.deps.AssumeReachable {
		return nodes, nil
	}
	nodes, rest := c.readiness.Ready(time.Now(), nodes)
	if rest > 0 {
		c.placement.EnqueueAfter(rest, all)
	}
	return nodes, nil
}
