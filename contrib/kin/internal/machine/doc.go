// Package machine creates machines from namespaces: a node of the cluster, a
// host outside it, or the wire between them.
//
// A machine is a mount, PID, network, UTS, IPC and cgroup namespace whose first
// process is kin itself. The whole machine depends on that process: killing
// it is a power failure, and nothing of the machine remains but its disk
// directory and, for a moment, its cgroups.
//
// Boot runs in the kin command; Setup and Main run in the process it starts
// (setup.go, rootfs.go and network.go happen inside the new namespaces). Enter
// runs a program in a machine. Callers: package cluster and the hidden commands
// of the kin binary.
package machine
