package master

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
)

const (
	// look is how often the publisher reads the tracker.
	look = time.Second
	// fieldManager is the field manager of the published data.
	fieldManager = "ovnkube-master"
)

// Publisher publishes what a tracker knows in a ConfigMap, for clients that only have access to the
// API. What an earlier leader has published stays as long as it is true.
type Publisher struct {
	kube      kubernetes.Interface
	namespace string
	tracker   *health.Tracker
	// timeout is the tracker's; if it is 0 the tracker knows nothing.
	timeout time.Duration
	now     func() time.Time
	queue   *queue.Controller

	// Only used by the single worker:
	began   time.Time
	samples reachability.Samples
	// published is the content of the ConfigMap; nil until it was read.
	published *reachability.Report
}

// NewPublisher returns the publisher of a tracker with its total timeout.
func NewPublisher(kube kubernetes.Interface, namespace string, tracker *health.Tracker, timeout time.Duration) *Publisher {
	p := &Publisher{kube: kube, namespace: namespace, tracker: tracker, timeout: timeout, now: time.Now}
	p.queue = queue.New("reachability", p.reconcile)
	p.queue.Seed(func() []string { return []string{reachability.ConfigMap} })
	return p
}

// Run runs until ctx is done.
func (p *Publisher) Run(ctx context.Context) error { return p.queue.Run(ctx, 1) }

func (p *Publisher) reconcile(ctx context.Context, key string) error {
	facts, now := p.samples.Add(p.facts()), p.now()
	if p.began.IsZero() {
		p.began = now
	}
	// Earlier the tracker may not know yet what the previous leader knew of a node.
	if now.Sub(p.began) >= max(reachability.Pause, 2*p.timeout) {
		if err := p.publish(ctx, facts, now); err != nil {
			return err
		}
	}
	p.queue.EnqueueAfter(look, key)
	return nil
}

// facts returns what the tracker knows now.
func (p *Publisher) facts() map[string]reachability.Fact {
	facts := map[string]reachability.Fact{}
	if p.timeout == 0 {
		return facts
	}
	p.tracker.Each(func(node string, reach place.Reach, answer time.Duration) {
		facts[node] = reachability.Fact{Reach: reach, Latency: answer}
	})
	return facts
}

func (p *Publisher) publish(ctx context.Context, facts map[string]reachability.Fact, now time.Time) error {
	if p.published == nil {
		was, err := p.read(ctx)
		if err != nil {
			return err
		}
		p.published = &was
	}
	next, write := reachability.Plan(*p.published, facts, now)
	if !write {
		return nil
	}
	text, err := next.Encode()
	if err != nil {
		return err
	}
	object := applyv1.ConfigMap(reachability.ConfigMap, p.namespace).WithData(map[string]string{reachability.Key: text})
	if _, err := p.kube.CoreV1().ConfigMaps(p.namespace).Apply(ctx, object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("publish the reachability of nodes: %w", err)
	}
	klog.V(2).InfoS("Published the reachability of nodes", "nodes", len(next.Nodes))
	p.published = &next
	return nil
}

// read returns what is published, or the zero report if there is nothing.
func (p *Publisher) read(ctx context.Context) (reachability.Report, error) {
	object, err := p.kube.CoreV1().ConfigMaps(p.namespace).Get(ctx, reachability.ConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return reachability.Report{}, nil
	case err != nil:
		return reachability.Report{}, fmt.Errorf("read the reachability of nodes: %w", err)
	}
	was, err := reachability.Decode(object.Data[reachability.Key])
	if err != nil { // it is rewritten
		klog.InfoS("Cannot read the published reachability of nodes", "configMap", klog.KObj(object), "err", err)
	}
	return was, nil
}
