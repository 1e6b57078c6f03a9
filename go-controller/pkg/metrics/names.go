package metrics

// Names of all metrics.
const (
	// nameBuildInfo is 1; its labels say which build runs.
	nameBuildInfo = "ovnkube_build_info"
	// nameLeader is 1 while this process leads the masters.
	nameLeader = "ovnkube_leader"
	// nameCheck is 1 while a readiness check passes, by check.
	nameCheck = "ovnkube_readiness_check"

	// nameUnsnatted counts packets that would have left a node with the address
	// of a pod, by where they were stopped: in the host's kernel or on the
	// external bridge.
	nameUnsnatted = "ovnkube_node_unsnatted_packets_dropped_total"

	// nameNoReply counts packets from the port of a Service that were no replies and
	// would have left with the node's address, though the pod has an egress address,
	// by where they were stopped.
	nameNoReply = "ovnkube_node_service_port_packets_dropped_total"
	// namePanics counts the panics that the process survived, by the part of it
	// that they were in: a controller, or a loop.
	namePanics = "ovnkube_panics_total"
	// nameFailing is how many keys of a controller fail and are tried again.
	nameFailing = "ovnkube_failing_keys"

	// The queues of the controllers, by name.

	// nameQueueDepth is the number of keys that wait.
	nameQueueDepth = "ovnkube_workqueue_depth"
	// nameQueueAdds counts the keys added.
	nameQueueAdds = "ovnkube_workqueue_adds_total"
	// nameQueueLatency is how long a key waited.
	nameQueueLatency = "ovnkube_workqueue_queue_duration_seconds"
	// nameQueueWork is how long a reconcile took.
	nameQueueWork = "ovnkube_workqueue_work_duration_seconds"
	// nameQueueUnfinished is the time spent so far in reconciles still running.
	nameQueueUnfinished = "ovnkube_workqueue_unfinished_work_seconds"
	// nameQueueLongest is the age of the oldest reconcile still running.
	nameQueueLongest = "ovnkube_workqueue_longest_running_processor_seconds"
	// nameQueueRetries counts the reconciles that failed.
	nameQueueRetries = "ovnkube_workqueue_retries_total"
)

// Labels.
const (
	labelVersion = "version"
	labelCommit  = "commit"
	labelGo      = "go_version"
	labelCheck   = "check"
	labelAt      = "at"
	labelQueue   = "name"

	labelController = "controller"
	labelPart       = "part"
)
