package figures

import "time"

// The bounds of what the documents promise. A planned move and the death of a process
// that no packet depends on need not lose a packet; what is allowed for them is what
// the machine's load does.
var (
	// EgressServiceFailover is from the loss of a host's power to the first packet by the
	// next host: docs/egress-service.md.
	EgressServiceFailover = Bound{Promised: 2 * time.Second, Factor: 1}
	// EgressIPFailover is the longest time without an answer around the loss of power of
	// the node that has the address: docs/egress-ip.md.
	EgressIPFailover = Bound{Promised: 2 * time.Second, Factor: 2}
	// Move is the longest time without an answer around a planned move, seen by pods that
	// open a connection every 10 ms: docs/egress-ip.md.
	Move = Bound{Promised: 100 * time.Millisecond, Factor: 20}
	// OpenConnectionMove is how long an open TCP connection stands still in a planned
	// move: TCP sends again after 200 ms at the earliest, and then waits twice as long.
	OpenConnectionMove = Bound{Promised: 200 * time.Millisecond, Factor: 20}
	// OpenConnectionFailover is the same after a loss of power: what TCP has sent again in
	// vain after 1.4 s it sends again after 3.0, and then after 6.2; on a busy machine a
	// packet is lost now and then.
	OpenConnectionFailover = Bound{Promised: 2 * time.Second, Factor: 4}
	// ResetConnection is until a connection whose address changed has been reset and is
	// made anew: docs/egress-service.md.
	ResetConnection = Bound{Promised: time.Second, Factor: 5}
	// MetalLBFailover is the longest time without an answer where MetalLB announces the
	// address by BGP and its host loses power: the hold time of the router's sessions.
	MetalLBFailover = Bound{Promised: 3 * time.Second, Factor: 2}
	// MetalLBMove is the same of a planned move: another speaker has to see the label.
	MetalLBMove = Bound{Promised: time.Second, Factor: 3}
	// Upgrade is the longest time without an answer where a node's ovnkube or ovn-controller
	// is replaced by another version: a planned move, and at most a failover.
	Upgrade = Bound{Promised: 2 * time.Second, Factor: 2}
	// SwitchRestart is the same where the Open vSwitch of a node restarts, whose pods have no
	// network meanwhile: docs/operations.md.
	SwitchRestart = Bound{Promised: 5 * time.Second, Factor: 2}
	// Undisturbed is the longest time without an answer where nothing is to change.
	Undisturbed = Bound{Promised: 100 * time.Millisecond, Factor: 10}
)

// Start is the time that pods take to start where many do at once. Nothing is promised of it: it
// is what others are compared with, and the bound is a limit for a machine that stands still.
var Start = Bound{Promised: 5 * time.Second, Factor: 20}

// StartServed is that of pods of an EgressIP on another network: at most a second more.
func StartServed(plain time.Duration) Bound {
	return Bound{Promised: plain + time.Second, Factor: 2}
}

// Takeover is EgressIPFailover where a node takes over many addresses at once: at most a
// second more than with those of one EgressIP.
func Takeover(one time.Duration) Bound {
	return Bound{Promised: one + time.Second, Factor: 2}
}

// BFDDetection is how long packets still come to a gateway after its last word: the
// detection time, and some ten milliseconds for OVN: docs/external-gateways.md.
func BFDDetection(detectionTime time.Duration) Bound {
	return Bound{Promised: detectionTime + 10*time.Millisecond, Factor: 2}
}
