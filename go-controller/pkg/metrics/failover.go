package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

// The stages of a failover, in order.
const (
	stageDecided      = "decided"
	stageAcknowledged = "acknowledged"
	stageProgrammed   = "programmed"
)

// failovers measures how long it takes until an object on a node that died is served again. It keeps state only for
// dead nodes and for objects whose failover is in progress.
type failovers struct {
	stages *prometheus.HistogramVec
	*underWay
}

type underWay struct {
	mu     sync.Mutex
	deaths map[string]time.Time // when each dead node last answered
	open   map[object]*progress
}

type object struct{ kind, key string }

// progress is the progress of an object's failover.
type progress struct {
	since        time.Time
	acknowledged bool
}

func newFailovers() failovers {
	stages := failover.histograms(failoverBuckets)
	for _, kind := range []string{conditions.EgressIP, conditions.EgressService} {
		for _, stage := range []string{stageDecided, stageAcknowledged, stageProgrammed} {
			stages.WithLabelValues(kind, stage)
		}
	}
	return failovers{stages, &underWay{deaths: map[string]time.Time{}, open: map[object]*progress{}}}
}

func (f failovers) died(node string, answered time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaths[node] = answered
}

func (f failovers) alive(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.deaths, node)
}

func (f failovers) observe(o object, stage string, p *progress) {
	f.stages.WithLabelValues(o.kind, stage).Observe(time.Since(p.since).Seconds())
}

// Decided reports a new decision about an object, and which unreachable nodes it moves the object away from. If
// there are none, an ongoing measurement of the object ends.
func (l *Leader) Decided(kind, key string, unreachable ...string) {
	if l == nil {
		return
	}
	f, o := l.failovers, object{kind, key}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, o)
	for _, node := range unreachable {
		died, known := f.deaths[node]
		if p := f.open[o]; known && (p == nil || died.Before(p.since)) {
			f.open[o] = &progress{since: died}
		}
	}
	if p := f.open[o]; p != nil {
		f.observe(o, stageDecided, p)
	}
}

// Acknowledged reports that the nodes to which an object was moved have acknowledged it.
func (l *Leader) Acknowledged(kind, key string) {
	if l == nil {
		return
	}
	l.failovers.mu.Lock()
	defer l.failovers.mu.Unlock()
	l.failovers.acknowledge(object{kind, key})
}

// acknowledge does the work of Acknowledged; mu is held.
func (f failovers) acknowledge(o object) {
	if p := f.open[o]; p != nil && !p.acknowledged {
		p.acknowledged = true
		f.observe(o, stageAcknowledged, p)
	}
}

// Programmed reports that an object is served again, which implies that it is acknowledged.
func (l *Leader) Programmed(kind, key string) {
	if l == nil {
		return
	}
	f, o := l.failovers, object{kind, key}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acknowledge(o)
	if p := f.open[o]; p != nil {
		f.observe(o, stageProgrammed, p)
		delete(f.open, o)
	}
}
