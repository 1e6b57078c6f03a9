package metrics

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/util/workqueue"

	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

// Set is the metrics of one process. It is safe for concurrent use.
type Set struct {
	registry *prometheus.Registry
	leads    *prometheus.GaugeVec
	leader   *Leader
	queues   *queues
	repairs  repairs
}

// New returns a Set with metrics of the build's version, the Go runtime and the process.
func New(build version.Info) *Set {
	s := &Set{registry: prometheus.NewRegistry(), leads: leader.gauges(), leader: newLeader(), queues: newQueues()}
	info := buildInfo.gauges()
	info.WithLabelValues(build.Version, build.Commit, build.Go).Set(1)
	s.SetLeader(false)
	s.registry.MustRegister(info, s.leads, s.leader, s.queues, &s.repairs,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Handler serves the metrics in Prometheus' formats.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry})
}

// SetLeader sets whether this process is the leader.
func (s *Set) SetLeader(leads bool) {
	s.leads.WithLabelValues().Set(number(leads))
	s.leader.leads.Store(leads)
}

// Leader returns the metrics of the leader of the masters.
func (s *Set) Leader() *Leader { return s.leader }

// Checks registers the source of the results of all readiness checks, which is called on each scrape. Call Checks
// once.
func (s *Set) Checks(results func() map[string]error) {
	s.registry.MustRegister(checks{
		desc:    check.desc(),
		results: results,
	})
}

// Failing registers the source of the number of failing keys by controller, which is called on each scrape. Call
// Failing once.
func (s *Set) Failing(counts func() map[string]int) {
	s.registry.MustRegister(vector[int]{
		desc:   failing.desc(),
		kind:   prometheus.GaugeValue,
		counts: counts,
	})
}

// Waiting registers the source of the number of waits by part, which is called on each scrape. Call Waiting once.
func (s *Set) Waiting(counts func() map[string]int) {
	s.registry.MustRegister(vector[int]{
		desc:   waiting.desc(),
		kind:   prometheus.GaugeValue,
		counts: counts,
	})
}

// Panics registers the source of the number of recovered panics by part, which is called on each scrape. Call
// Panics once.
func (s *Set) Panics(counts func() map[string]uint64) {
	s.registry.MustRegister(vector[uint64]{
		desc:   survived.desc(),
		kind:   prometheus.CounterValue,
		counts: counts,
	})
}

// Certificates registers the source of the time when certificates expire by file, which is called on each scrape. Call
// Certificates once.
func (s *Set) Certificates(expire func() map[string]time.Time) {
	s.registry.MustRegister(vector[int64]{
		desc: certificates.desc(),
		kind: prometheus.GaugeValue,
		counts: func() map[string]int64 {
			out := map[string]int64{}
			for file, at := range expire() {
				out[file] = at.Unix()
			}
			return out
		},
	})
}

// Repaired registers a source of how often something that others had changed was repaired, by kind, which is called
// on each scrape. Each role of the process calls it with its own kinds.
func (s *Set) Repaired(counts func() map[string]uint64) { s.repairs.add(counts) }

// Workqueue returns the provider for k8s.io/client-go/util/workqueue.
func (s *Set) Workqueue() workqueue.MetricsProvider { return s.queues }

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// checks collects readiness on each scrape: there is no copy.
type checks struct {
	desc    *prometheus.Desc
	results func() map[string]error
}

// Describe implements prometheus.Collector.
func (c checks) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c checks) Collect(ch chan<- prometheus.Metric) {
	for name, err := range c.results() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, number(err == nil), name)
	}
}

// vector collects values with one label on each scrape.
type vector[N int | int64 | uint64] struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	counts func() map[string]N
}

// Describe implements prometheus.Collector.
func (v vector[N]) Describe(ch chan<- *prometheus.Desc) { ch <- v.desc }

// Collect implements prometheus.Collector.
func (v vector[N]) Collect(ch chan<- prometheus.Metric) {
	for label, n := range v.counts() {
		ch <- prometheus.MustNewConstMetric(v.desc, v.kind, float64(n), label)
	}
}

// repairs collects the repairs of each role of the process.
type repairs struct {
	mu      sync.Mutex
	sources []func() map[string]uint64
}

func (r *repairs) add(counts func() map[string]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sources = append(r.sources, counts)
}

// Describe implements prometheus.Collector.
func (r *repairs) Describe(ch chan<- *prometheus.Desc) { ch <- repaired.desc() }

// Collect implements prometheus.Collector.
func (r *repairs) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, counts := range r.sources {
		vector[uint64]{desc: repaired.desc(), kind: prometheus.CounterValue, counts: counts}.Collect(ch)
	}
}
