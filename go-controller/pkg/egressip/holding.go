package egressip

import (
	"net/netip"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// Holding is the state of an egress address on a node.
type Holding uint8

// The states of an address on a node. A node answers for an address that is Held or
// Retained, and for no other one.
const (
	// Released: the node has nothing to do with the address.
	Released Holding = iota
	// Preparing: it prepares everything except for the address, which another node retains.
	Preparing
	// Waiting: it is to hold the address, but the status entry of another node still has it.
	Waiting
	// Held: it is to hold the address, and does.
	Held
	// Retained: another node is to hold the address, and this one keeps answering for it until
	// that one is prepared.
	Retained
)

// String returns the name in lower case.
func (h Holding) String() string {
	return [...]string{"released", "preparing", "waiting", "held", "retained"}[h]
}

// Answers tells whether a node answers for an address.
func (h Holding) Answers() bool { return h == Held || h == Retained }

// Next returns the next state of an address on a node, from whether the node answers for it now
// and the status of its EgressIP. Nothing else decides about the state.
func Next(answers bool, status v1.EgressIPStatus, node string, addr netip.Addr) Holding {
	item := itemOf(status, addr)
	switch {
	case item.Node == node && answers:
		return Held
	case item.From == node && answers:
		return Retained
	case item.Node != node:
		return Released // a node cannot retain what it does not have
	case item.From != "":
		return Preparing
	case Other(status, node, addr) != "":
		return Waiting
	}
	return Held
}

// Prepares tells whether a node has to report that it is prepared for an address.
func Prepares(status v1.EgressIPStatus, node string, addr netip.Addr) bool {
	item := itemOf(status, addr)
	return item.Node == node && item.From != ""
}
