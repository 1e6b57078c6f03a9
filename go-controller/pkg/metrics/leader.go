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

// Buckets of the histograms, in seconds: a failover takes a second or two, a probe and a
// transaction milliseconds.
var (
	failoverBuckets    = []float64{0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 5, 10, 30, 60}
	podStartBuckets    = []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10}
	probeBuckets       = prometheus.ExponentialBuckets(0.0005, 2, 12)
	transactionBuckets = prometheus.ExponentialBuckets(0.001, 2, 15)
)

// Emit reports a number under the values of labels.
type Emit func(value float64, labels ...string)

// Conditions calls visit with the conditions of each object of a kind.
type Conditions func(visit func([]metav1.Condition))

// Leader is what the leader of the masters measures. Nothing of it is reported while
// this process does not lead. It is safe for concurrent use, and a nil Leader measures
// nothing, so that controllers work without one.
type Leader struct {
	leads atomic.Bool

	moves, rowsWritten                        *prometheus.CounterVec
	detection, podStart, probes, transactions *prometheus.HistogramVec
	failovers                                 failovers

	mu         sync.Mutex // guards what follows
	conditions map[string]Conditions
	sources    map[string]source // by the name of the metric
}

// source is where a metric is read from at the time of reading.
type source struct {
	desc *prometheus.Desc
	read func(Emit)
}

// What a result or an operation can be. Each is reported from the start, as 0: a counter that
// appears with its first event has not increased for Prometheus.
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
	// otherReason is that of a move which nothing spoke for.
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

// Objects has the objects of a kind counted by condition when metrics are read.
func (l *Leader) Objects(kind string, each Conditions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conditions[kind] = each
}

// Addresses says where the addresses of EgressIPs are read from: Assigned and Programmed
// by node.
func (l *Leader) Addresses(read func(Emit)) { l.read(addresses, read) }

// The states of an address on a node.
const (
	Assigned   = "assigned"
	Programmed = "programmed"
)

// Hosted says where the number of EgressServices by host is read from.
func (l *Leader) Hosted(read func(Emit)) { l.read(hosted, read) }

// PodsHeld says where the number of pods is read from that wait with their start.
func (l *Leader) PodsHeld(count func() int) {
	l.read(podsHeld, func(emit Emit) { emit(float64(count())) })
}

// Rows says where the number of rows in the northbound database is read from, by table.
func (l *Leader) Rows(read func(Emit)) { l.read(rows, read) }

// Reachability says where the state of each node is read from, and how long its last
// answer took; 0 for none yet.
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

// Moves says that a kind of object can move, and which reasons its feature has for that
// besides those of place.
func (l *Leader) Moves(kind string, reasons ...place.Reason) {
	for _, reason := range slices.Concat([]place.Reason{otherReason}, place.Reasons(), reasons) {
		l.moves.WithLabelValues(kind, string(reason))
	}
}

// Moved counts moves of a kind of object from a node to another, by what spoke against
// the node before; "" where nothing is known.
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

// PodStarted says how long a pod waited with its start, and whether it did so until what
// it sends leaves as it is to.
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

// Probed says how a probe of a node ended: ok where it was answered. sent is false where it could not be sent.
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

// Changed says that the state of a node changed, and when it answered last; the zero time
// for never.
func (l *Leader) Changed(node string, reach place.Reach, last time.Time) {
	if reach != place.Dead || last.IsZero() {
		l.failovers.alive(node)
		return
	}
	l.detection.WithLabelValues().Observe(time.Since(last).Seconds())
	l.failovers.died(node, last)
}

// Transaction says how a transaction of the northbound database ended, and how many rows
// it wrote.
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

// static are the collectors that are written to.
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

// holders are the objects whose condition says the same.
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
				continue // it is there under its present name, too
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
