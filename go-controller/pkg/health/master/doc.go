// Package master sets the targets of the health tracker: every node with a pod subnet is probed at
// the addresses of its management port. It also publishes what the tracker knows (package
// reachability). Caller: pkg/app.
package master
