package metrics

import "github.com/prometheus/client_golang/prometheus"

// Labels.
const (
	labelVersion    = "version"
	labelCommit     = "commit"
	labelGo         = "go_version"
	labelCheck      = "check"
	labelAt         = "at"
	labelFile       = "file"
	labelQueue      = "name"
	labelController = "controller"
	labelPart       = "part"
	labelKind       = "kind"
	labelType       = "type"
	labelStatus     = "status"
	labelReason     = "reason"
	labelNode       = "node"
	labelState      = "state"
	labelStage      = "stage"
	labelResult     = "result"
	labelOperation  = "operation"
	labelTable      = "table"
)

// Metrics of every process.
var (
	buildInfo = define(process, gauge, "ovnkube_build_info", "The running build; the value is 1.", labelVersion, labelCommit, labelGo)
	leader    = define(process, gauge, "ovnkube_leader", "Whether this process leads the masters.")
	check     = define(process, gauge, "ovnkube_readiness_check", "Whether a readiness check passes.", labelCheck)
	survived  = define(process, counter, "ovnkube_panics_total", "Recovered panics, by the part of the program where they occurred.", labelPart)
	failing   = define(process, gauge, "ovnkube_failing_keys", "Keys whose last reconcile failed.", labelController)
	waiting   = define(process, gauge, "ovnkube_waits", "Number of objects, connections or lists that a part of the program is waiting for.", labelPart)
	repaired  = define(process, counter, "ovnkube_drift_repaired_total", "Repairs of what others had changed or removed: objects of the host, "+
		"passes over the iptables chains, and owners of northbound rows.", labelKind)

	certificates = define(process, gauge, "ovnkube_certificate_expiration_timestamp_seconds",
		"When a certificate of the process expires, or the first of the authorities that it trusts, by file. Files that are absent have none.", labelFile)

	queueDepth      = define(process, gauge, "ovnkube_workqueue_depth", "Keys that are waiting.", labelQueue)
	queueAdds       = define(process, counter, "ovnkube_workqueue_adds_total", "Keys added.", labelQueue)
	queueLatency    = define(process, histogram, "ovnkube_workqueue_queue_duration_seconds", "Seconds a key waited.", labelQueue)
	queueWork       = define(process, histogram, "ovnkube_workqueue_work_duration_seconds", "Seconds a reconcile took.", labelQueue)
	queueUnfinished = define(process, gauge, "ovnkube_workqueue_unfinished_work_seconds", "Seconds spent in reconciles that still run.", labelQueue)
	queueLongest    = define(process, gauge, "ovnkube_workqueue_longest_running_processor_seconds",
		"Seconds the oldest reconcile that still runs has taken.", labelQueue)
	queueRetries = define(process, counter, "ovnkube_workqueue_retries_total", "Reconciles that failed and will be repeated.", labelQueue)
)

// Metrics of each node.
var (
	unsnatted = define(node, counter, "ovnkube_node_unsnatted_packets_dropped_total",
		"Packets of pods that were dropped because their source address had not been translated.", labelAt)
	noReply = define(node, counter, "ovnkube_node_service_port_packets_dropped_total",
		"Packets from the port of a Service that were dropped because they are not replies and would have left with the address of the node.", labelAt)
)

// Metrics of the leader of the masters.
var (
	objects = define(leading, gauge, "ovnkube_egress_objects",
		"Objects of the egress features by condition.", labelKind, labelType, labelStatus, labelReason)
	oldestTransition = define(leading, gauge, "ovnkube_egress_condition_oldest_transition_timestamp_seconds",
		"When the condition last changed, of the object that has had this status for the longest time.", labelKind, labelType, labelStatus, labelReason)
	addresses = define(leading, gauge, "ovnkube_egressip_addresses",
		"Addresses of EgressIPs by node: assigned to the node, or programmed, which means that the node has acknowledged them.", labelNode, labelState)
	hosted = define(leading, gauge, "ovnkube_egressservice_hosted",
		"EgressServices by host, without those that every node serves.", labelNode)
	moves = define(leading, counter, "ovnkube_egress_moves_total",
		"Moves of EgressIP addresses and of EgressServices from one node to another, by the reason why the previous node lost them.", labelKind, labelReason)
	detection = define(leading, histogram, "ovnkube_node_failure_detection_duration_seconds",
		"Seconds from the last answer of a node to the decision that it is unreachable.")
	failover = define(leading, histogram, "ovnkube_egress_failover_duration_seconds",
		"Seconds from the last answer of a node to a stage of the move of an EgressIP or EgressService away from it: decided, acknowledged by the next node, "+
			"and programmed, which means written to the northbound database and, for the pods of EgressIPs, in effect on their nodes.", labelKind, labelStage)
	podsHeld = define(leading, gauge, "ovnkube_pods_held_at_start",
		"Pods of EgressIPs whose start is delayed until their egress policies are in effect.")
	podStart = define(leading, histogram, "ovnkube_pod_start_held_duration_seconds",
		"Seconds by which the start of pods of EgressIPs was delayed, by result: programmed or timed_out.", labelResult)
	reachability = define(leading, gauge, "ovnkube_node_reachability",
		"Reachability of a node: 1 for its current state (alive, dead or unknown), 0 for the others.", labelNode, labelState)
	probeLatency = define(leading, gauge, "ovnkube_node_probe_last_duration_seconds",
		"Seconds until the last answer of a node to a probe.", labelNode)
	probes = define(leading, histogram, "ovnkube_node_probe_duration_seconds",
		"Duration of probes of nodes in seconds, by result: answered, silent, or failed (not sent).", labelResult)
	transactions = define(leading, histogram, "ovnkube_northbound_transaction_duration_seconds",
		"Duration of transactions of the northbound database in seconds, by result: committed or failed.", labelResult)
	rowsWritten = define(leading, counter, "ovnkube_northbound_rows_written_total",
		"Rows written to the northbound database: insert, update or delete.", labelOperation)
	rows = define(leading, gauge, "ovnkube_northbound_rows",
		"Rows in the northbound database by table, whoever owns them.", labelTable)
)

// Type is the type of a metric.
type Type string

const (
	gauge     Type = "gauge"
	counter   Type = "counter"
	histogram Type = "histogram"
)

// Process says which processes have a metric.
type Process string

const (
	process Process = "every process"
	node    Process = "ovnkube on each node"
	leading Process = "the leader of the masters"
)

// Definition defines a metric. All are in names.go; their names start with "ovnkube_".
type Definition struct {
	Of         Process
	Type       Type
	Name, Help string
	Labels     []string
}

var all []Definition

// All returns all metrics except those of the Go runtime, the process and the HTTP handler.
func All() []Definition { return all }

func define(of Process, kind Type, name, help string, labels ...string) Definition {
	d := Definition{Of: of, Type: kind, Name: name, Help: help, Labels: labels}
	all = append(all, d)
	return d
}

func (d Definition) desc() *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
}

func (d Definition) gauges() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

func (d Definition) counters() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

func (d Definition) histograms(buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: buckets}, d.Labels)
}
