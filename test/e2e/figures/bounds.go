package figures

import "time"

// Bounds for what the documentation promises. A planned move, or the death of a process that
// packets do not depend on, should not lose any packets; what is allowed for them accounts for the
// load of the machine.
var (
	// EgressServiceFailover is the time from a host's power loss to the first packet sent through
	// the next host: docs/egress-service.md.
	EgressServiceFailover = Bound{Promised: 2 * time.Second, Factor: 1}
	// EgressIPFailover is the longest time without an answer around a power loss of the node that
	// has the address: docs/egress-ip.md.
	EgressIPFailover = Bound{Promised: 2 * time.Second, Factor: 2}
	// Move is the longest time without an answer around a planned move, seen by pods that
	// open a connection every 10 ms: docs/egress-ip.md.
	Move = Bound{Promised: 100 * time.Millisecond, Factor: 15}
	// OpenConnectionMove is how long an open TCP connection stalls during a planned move: TCP
	// retransmits after 200 ms at the earliest, and then backs off exponentially.
	OpenConnectionMove = Bound{Promised: 200 * time.Millisecond, Factor: 10}
	// OpenConnectionFailover is how long it stalls after a power loss: a retransmission that failed
	// after 1.4 s is repeated after 3.0 s and then after 6.2 s, and on a busy machine a packet is
	// lost now and then.
	OpenConnectionFailover = Bound{Promised: 2 * time.Second, Factor: 4}
	// ResetConnection is the time until a connection whose address changed has been reset and
	// reopened: docs/egress-service.md.
	ResetConnection = Bound{Promised: time.Second, Factor: 5}
	// MetalLBFailover is the longest time without an answer when MetalLB announces the address by
	// BGP and the host loses power: the hold time of the router's sessions.
	MetalLBFailover = Bound{Promised: 3 * time.Second, Factor: 2}
	// MetalLBMove is the same for a planned move: another speaker has to see the label.
	MetalLBMove = Bound{Promised: time.Second, Factor: 3}
	// Upgrade is the longest time without an answer while a node's ovnkube or ovn-controller is
	// replaced by another version: a planned move, or a failover at worst.
	Upgrade = Bound{Promised: 2 * time.Second, Factor: 2}
	// SwitchRestart is the same while Open vSwitch restarts on a node, whose pods have no network
	// meanwhile: docs/operations.md.
	SwitchRestart = Bound{Promised: 5 * time.Second, Factor: 2}
	// Undisturbed is the longest time without an answer when nothing should change.
	Undisturbed = Bound{Promised: 100 * time.Millisecond, Factor: 10}
	// Fault is the same when a process fails that packets do not depend on, such as the API server:
	// for a moment, its successor takes the processor from everything else. docs/design/architecture.md.
	Fault = Bound{Promised: 100 * time.Millisecond, Factor: 15}
	// SwitchFault is the longest time without an answer when a process of a node's switch fails:
	// SwitchRestart, and the supervisor has to notice first.
	SwitchFault = Bound{Promised: SwitchRestart.Promised, Factor: 2 * SwitchRestart.Factor}
	// InForce is the time until a change takes effect that needs a process which was just restarted:
	// docs/high-availability.md.
	InForce = Bound{Promised: 3 * time.Second, Factor: 3}
)

// Open returns the bound for TCP connections that are open meanwhile: after retransmitting in vain,
// TCP waits for as long again.
func (b Bound) Open() Bound {
	b.Factor *= 2
	b.Stall *= 2
	return b
}

// Start is how long pods take to start when many start at once. Nothing is promised for it: it is
// the baseline for other figures, and the bound only catches a machine that hangs.
var Start = Bound{Promised: 5 * time.Second, Factor: 20}

// StartServed is Start for pods selected by an EgressIP on another network: at most a second more.
func StartServed(plain time.Duration) Bound {
	return Bound{Promised: plain + time.Second, Factor: 2}
}

// Takeover is EgressIPFailover when a node takes over many addresses at once: at most a second more
// than with those of a single EgressIP.
func Takeover(one time.Duration) Bound {
	return Bound{Promised: one + time.Second, Factor: 2}
}

// BFDDetection is how long packets are still sent to a gateway after its last BFD packet: the
// detection time, and about ten milliseconds for OVN: docs/external-gateways.md.
func BFDDetection(detectionTime time.Duration) Bound {
	return Bound{Promised: detectionTime + 10*time.Millisecond, Factor: 2}
}
