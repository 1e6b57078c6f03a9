package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

// Set is the metrics of one process. It is safe for concurrent use.
type Set struct {
	registry *prometheus.Registry
	leader   prometheus.Gauge
	queues   *queues
}

// New returns a Set with the build's version, the Go runtime and the process.
func New(build version.Info) *Set {
	s := &Set{
		registry: prometheus.NewRegistry(),
		leader:   prometheus.NewGauge(prometheus.GaugeOpts{Name: nameLeader, Help: "Whether this process leads the masters."}),
		queues:   newQueues(),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: nameBuildInfo, Help: "The running build.",
		ConstLabels: prometheus.Labels{labelVersion: build.Version, labelCommit: build.Commit, labelGo: build.Go},
	})
	info.Set(1)
	s.registry.MustRegister(info, s.leader, s.queues,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Handler serves the metrics in the formats of Prometheus.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry})
}

// SetLeader says whether this process leads.
func (s *Set) SetLeader(leads bool) { s.leader.Set(number(leads)) }

// Checks reports the result of every readiness check when metrics are read. It
// is called once.
func (s *Set) Checks(results func() map[string]error) {
	s.registry.MustRegister(checks{
		desc:    prometheus.NewDesc(nameCheck, "Whether a readiness check passes.", []string{labelCheck}, nil),
		results: results,
	})
}

// Failing reports how many keys fail, by controller, when metrics are read. It is
// called once.
func (s *Set) Failing(counts func() map[string]int) {
	s.registry.MustRegister(vector[int]{
		desc:   prometheus.NewDesc(nameFailing, "Keys that failed when they were last tried.", []string{labelController}, nil),
		kind:   prometheus.GaugeValue,
		counts: counts,
	})
}

// Panics reports how many panics the process survived, by part, when metrics are
// read. It is called once.
func (s *Set) Panics(counts func() map[string]uint64) {
	s.registry.MustRegister(vector[uint64]{
		desc:   prometheus.NewDesc(namePanics, "Panics that were recovered from.", []string{labelPart}, nil),
		kind:   prometheus.CounterValue,
		counts: counts,
	})
}

// Unsnatted reports how many packets of pods the node kept from leaving with the
// address of the pod, by where it did. It is called once.
func (s *Set) Unsnatted(at map[string]func() (uint64, error)) {
	s.dropped(nameUnsnatted, "Packets of pods that were dropped because nothing had translated their source address.", at)
}

// NoReply reports how many packets the node dropped that pods of an egress feature
// sent from the port of a Service to somebody whom they do not answer, by where it
// did. It is called once.
func (s *Set) NoReply(at map[string]func() (uint64, error)) {
	s.dropped(nameNoReply, "Packets from the port of a Service that were dropped because they are no replies and would have left with "+
		"the address of the node.", at)
}

func (s *Set) dropped(name, help string, at map[string]func() (uint64, error)) {
	for where, dropped := range at {
		s.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: name, Help: help,
			ConstLabels: prometheus.Labels{labelAt: where},
		}, func() float64 {
			var n uint64
			err := panics.Catch("metrics", func() (err error) {
				n, err = dropped()
				return err
			})
			if err != nil {
				klog.ErrorS(err, "Cannot read the counter of dropped packets", "at", where)
			}
			return float64(n)
		}))
	}
}

// Workqueue returns the provider for k8s.io/client-go/util/workqueue.
func (s *Set) Workqueue() workqueue.MetricsProvider { return s.queues }

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// checks collects readiness at the time of reading: there is no second copy.
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

// vector collects numbers by a label at the time of reading.
type vector[N int | uint64] struct {
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
