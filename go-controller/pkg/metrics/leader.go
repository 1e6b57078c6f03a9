package metrics

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	is "github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// Histogram buckets, in seconds: a failover takes a second or two, probes and transactions take milliseconds.
var (
	failoverBuckets    = []float64{0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 5, 10, 30, 60}
	podStartBuckets    = []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10}
	probeBuckets       = prometheus.ExponentialBuckets(0.0005, 2, 12)
	transactionBuckets = prometheus.ExponentialBuckets(0.001, 2, 15)
)

// Emit reports a value with label values.
type Emit func(value float64, labels ...string)

// Conditions calls visit with the conditions of each object of a kind.
type Conditions func(visit func([]metav1.Condition))

// Leader holds the metrics of the leader of the masters. They are not reported while this process is not the
// leader. It is safe for concurrent use, and a nil Leader does nothing, so that controllers work without one.
type Leader struct {
	leads atomic.Bool

	moves, rowsWritten                        *prometheus.CounterVec
	detection, podStart, probes, transactions *prometheus.HistogramVec
	failovers                                 failovers

	mu         sync.Mutex // guards what follows
	conditions map[string]Conditions
	sources    map[string]source // by the name of the metric
}

// source provides the values of a metric on each scrape.
type source struct {
	desc *prometheus.Desc
	read func(Emit)
}

// Values of results and operations. Each is reported from the start, as 0: for Prometheus, a counter that appears
// with its first event has not increased.
const (
	timedOut  = "timed_out"
	answered  = "answered"
	silent    = "silent"
	notSent   = "failed"
	committed = "committed"
	failed    = "failed"
	inserts   = "insert"
	updates   = "update"
	deletes   = "delete"
	// otherReason is the reason of a move whose cause is not known.
	otherReason = "other"
)

func newLeader() *Leader {
	l := &Leader{
		moves:        moves.counters(),
		rowsWritten:  rowsWritten.counters(),
		detection:    detection.histograms(failoverBuckets),
		podStart:     podStart.histograms(podStartBuckets),
		probes:       probes.histograms(probeBuckets),
		transactions: transactions.histograms(transactionBuckets),
		failovers:    newFailovers(),
		conditions:   map[string]Conditions{},
		sources:      map[string]source{},
	}
	for vector, values := range map[*prometheus.HistogramVec][]string{
		l.podStart: {Programmed, timedOut}, l.probes: {answered, silent, notSent}, l.transactions: {committed, failed},
	} {
		for _, v := range values {
			vector.WithLabelValues(v)
		}
	}
	for _, operation := range []string{inserts, updates, deletes} {
		l.rowsWritten.WithLabelValues(operation)
	}
	l.detection.WithLabelValues()
	return l
}

// Objects registers a kind whose objects are counted by condition on each scrape.
func (l *Leader) Objects(kind string, each Conditions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conditions[kind] = each
}

// Addresses registers the source of the EgressIPs' addresses: Assigned and Programmed by node.
func (l *Leader) Addresses(read func(Emit)) { l.read(addresses, read) }

// States of an address on a node.
const (
	Assigned   = "assigned"
	Programmed = "programmed"
)

// Hosted registers the source of the number of EgressServices by host.
func (l *Leader) Hosted(read func(Emit)) { l.read(hosted, read) }

// PodsHeld registers the source of the number of pods whose start is held back.
func (l *Leader) PodsHeld(count func() int) {
	l.read(podsHeld, func(emit Emit) { emit(float64(count())) })
}

// Rows registers the source of the number of rows in the northbound database, by table.
func (l *Leader) Rows(read func(Emit)) { l.read(rows, read) }

// Reachability registers the source of each node's state, and of how long its last answer took; 0 if there was none
// yet.
func (l *Leader) Reachability(each func(func(node string, reach place.Reach, answer time.Duration))) {
	l.read(reachability, func(emit Emit) {
		each(func(node string, reach place.Reach, _ time.Duration) {
			for _, state := range []place.Reach{place.Alive, place.Dead, place.Unknown} {
				emit(number(state == reach), node, state.String())
			}
		})
	})
	l.read(probeLatency, func(emit Emit) {
		each(func(node string, _ place.Reach, answer time.Duration) {
			if answer > 0 {
				emit(answer.Seconds(), node)
			}
		})
	})
}

func (l *Leader) read(d Definition, read func(Emit)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sources[d.Name] = source{d.desc(), read}
}

// Moves registers a kind of object that can move, and the reasons of its feature for moves in addition to those of
// package place.
func (l *Leader) Moves(kind string, reasons ...place.Reason) {
	for _, reason := range slices.Concat([]place.Reason{otherReason}, place.Reasons(), reasons) {
		l.moves.WithLabelValues(kind, string(reason))
	}
}

// Moved counts moves of a kind of object from one node to another, by what was wrong with the previous node; "" if
// that is not known.
func (l *Leader) Moved(kind string, reasons ...string) {
	if l == nil {
		return
	}
	for _, reason := range reasons {
		if reason == "" {
			reason = otherReason
		}
		l.moves.WithLabelValues(kind, reason).Inc()
	}
}

// PodStarted reports how long a pod's start was held back, and whether its egress traffic was programmed by then.
func (l *Leader) PodStarted(waited time.Duration, programmed bool) {
	if l == nil {
		return
	}
	result := timedOut
	if programmed {
		result = Programmed
	}
	l.podStart.WithLabelValues(result).Observe(waited.Seconds())
}

// Probed reports the result of a probe of a node: ok means that it was answered, and sent is false if it could not
// be sent.
func (l *Leader) Probed(took time.Duration, ok, sent bool) {
	result := silent
	switch {
	case ok:
		result = answered
	case !sent:
		result = notSent
	}
	l.probes.WithLabelValues(result).Observe(took.Seconds())
}

// Changed reports that the state of a node changed, and when it last answered; the zero time means never.
func (l *Leader) Changed(node string, reach place.Reach, last time.Time) {
	if reach != place.Dead || last.IsZero() {
		l.failovers.alive(node)
		return
	}
	l.detection.WithLabelValues().Observe(time.Since(last).Seconds())
	l.failovers.died(node, last)
}

// Transaction reports the result of a transaction of the northbound database, and how many rows it wrote.
func (l *Leader) Transaction(took time.Duration, inserted, updated, deleted int, err error) {
	if err != nil {
		l.transactions.WithLabelValues(failed).Observe(took.Seconds())
		return
	}
	l.transactions.WithLabelValues(committed).Observe(took.Seconds())
	for operation, n := range map[string]int{inserts: inserted, updates: updated, deletes: deleted} {
		l.rowsWritten.WithLabelValues(operation).Add(float64(n))
	}
}

// static are the collectors that are updated directly.
func (l *Leader) static() []prometheus.Collector {
	return []prometheus.Collector{l.moves, l.rowsWritten, l.detection, l.podStart, l.probes, l.transactions, l.failovers.stages}
}

// Describe implements prometheus.Collector.
func (l *Leader) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range l.static() {
		c.Describe(ch)
	}
	for _, d := range []Definition{objects, oldestTransition, addresses, hosted, podsHeld, rows, reachability, probeLatency} {
		ch <- d.desc()
	}
}

// Collect implements prometheus.Collector.
func (l *Leader) Collect(ch chan<- prometheus.Metric) {
	if !l.leads.Load() {
		return
	}
	for _, c := range l.static() {
		c.Collect(ch)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		s.read(func(value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, value, labels...)
		})
	}
	for kind, each := range l.conditions {
		collectConditions(ch, kind, each)
	}
}

// state is what a condition says.
type state struct {
	kind, status, reason string
}

// holders are the objects with the same condition.
type holders struct {
	count  int
	oldest time.Time
}

func collectConditions(ch chan<- prometheus.Metric, kind string, each Conditions) {
	found := map[state]*holders{}
	each(func(conditions []metav1.Condition) {
		for i := range conditions {
			c := &conditions[i]
			if is.Formerly(kind, c.Type) != c.Type {
				continue // it is also there under its present name
			}
			key := state{c.Type, string(c.Status), c.Reason}
			h := found[key]
			if h == nil {
				h = &holders{oldest: c.LastTransitionTime.Time}
				found[key] = h
			}
			h.count++
			if c.LastTransitionTime.Time.Before(h.oldest) {
				h.oldest = c.LastTransitionTime.Time
			}
		}
	})
	for key, h := range found {
		labels := []string{kind, key.kind, key.status, key.reason}
		ch <- prometheus.MustNewConstMetric(objects.desc(), prometheus.GaugeValue, float64(h.count), labels...)
		ch <- prometheus.MustNewConstMetric(oldestTransition.desc(), prometheus.GaugeValue, float64(h.oldest.Unix()), labels...)
	}
}
