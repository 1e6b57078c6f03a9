package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// dropsWait is how long a scrape waits for counters outside this process. It is far below Prometheus' default limit
// for a scrape, which is 10 s: if a switch does not answer, all other metrics are needed.
const dropsWait = time.Second

// Drops are the numbers of packets that a node dropped at one place.
type Drops struct {
	// Unsnatted are packets of pods that would have left with the pod's address.
	Unsnatted uint64
	// NoReply are packets from the port of a Service, of pods of an egress feature, that are not replies.
	NoReply uint64
}

// Dropped registers the sources of the numbers of packets that the node dropped, by where they were dropped. A scrape
// reads each source once. While a source fails or takes long, its last values are reported, and nothing before
// it first succeeds. Call Dropped once.
func (s *Set) Dropped(at map[string]func() (Drops, error)) {
	for where, read := range at {
		labels := prometheus.Labels{labelAt: where}
		s.registry.MustRegister(&drops{
			where: where, read: read,
			unsnatted: prometheus.NewDesc(unsnatted.Name, unsnatted.Help, nil, labels),
			noReply:   prometheus.NewDesc(noReply.Name, noReply.Help, nil, labels),
		})
	}
}

// drops collects the drops at one place.
type drops struct {
	where              string
	read               func() (Drops, error)
	unsnatted, noReply *prometheus.Desc
	reads              singleflight.Group // scrapes share a read that takes long
	last               atomic.Pointer[Drops]
}

// Describe implements prometheus.Collector.
func (d *drops) Describe(ch chan<- *prometheus.Desc) {
	ch <- d.unsnatted
	ch <- d.noReply
}

// Collect implements prometheus.Collector.
func (d *drops) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-d.reads.DoChan("", d.update):
	case <-time.After(dropsWait):
	}
	if n := d.last.Load(); n != nil {
		ch <- prometheus.MustNewConstMetric(d.unsnatted, prometheus.CounterValue, float64(n.Unsnatted))
		ch <- prometheus.MustNewConstMetric(d.noReply, prometheus.CounterValue, float64(n.NoReply))
	}
}

func (d *drops) update() (any, error) {
	err := panics.Catch("metrics", func() error {
		n, err := d.read()
		if err == nil {
			d.last.Store(&n)
		}
		return err
	})
	if err != nil {
		klog.ErrorS(err, "Cannot read the counters of dropped packets", "at", d.where)
	}
	return nil, err
}
