package egressip

import (
	"net/netip"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// Holding is what a node is to be for an egress address.
type Holding uint8

// The states of an address on a node. A node answers for an address that is Held or
// Retained, and for no other one.
const (
	// Released: the node has nothing to do with the address.
	Released Holding = iota
	// Preparing: it gets everything ready but the address, which another node retains.
	Preparing
	// Waiting: it is to hold the address, and the status entry of another node has it still.
	Waiting
	// Held: it is to hold the address, and does.
	Held
	// Retained: another node is to hold the address, and this one goes on answering until
	// that one is prepared.
	Retained
)

// String returns the name in lower case.
func (h Holding) String() string {
	return [...]string{"released", "preparing", "waiting", "held", "retained"}[h]
}

// Answers tells whether a node answers for an address.
func (h Holding) Answers() bool { return h == Held || h == Retained }

// Next returns what an address that a node answers for, or not, becomes there by the status
// of its EgressIP. It is all that decides about it: what follows needs time only.
func Next(answers bool, status v1.EgressIPStatus, node string, addr netip.Addr) Holding {
	item := itemOf(status, addr)
	switch {
	case item.Node == node && answers:
		return Held
	case item.From == node && answers:
		return Retained
	case item.Node != node:
		return Released // it does not retain what it does not have
	case item.From != "":
		return Preparing
	case Other(status, node, addr) != "":
		return Waiting
	}
	return Held
}

// Prepares tells whether a node has to say that it is prepared for an address.
func Prepares(status v1.EgressIPStatus, node string, addr netip.Addr) bool {
	item := itemOf(status, addr)
	return item.Node == node && item.From != ""
}
