package egressip

import (
	"net/netip"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// Holding is the role of a node for an egress address.
type Holding uint8

// The states of an address on a node. A node answers for an address that is Held or
// Retained, and for no other one.
const (
	// Released: the node has no role for the address.
	Released Holding = iota
	// Preparing: the node prepares everything except the address, which another node retains.
	Preparing
	// Waiting: the node is to hold the address, but the status entry of another node still lists it.
	Waiting
	// Held: the node is to hold the address, and does.
	Held
	// Retained: another node is to hold the address, and this one continues to answer until
	// that node is prepared.
	Retained
)

// String returns the name in lower case.
func (h Holding) String() string {
	return [...]string{"released", "preparing", "waiting", "held", "retained"}[h]
}

// Answers reports whether a node answers for an address.
func (h Holding) Answers() bool { return h == Held || h == Retained }

// Next returns the next role of a node for an address, from whether the node answers for it
// now and the status of its EgressIP. Nothing else decides about the role: the steps that follow only take time.
func Next(answers bool, status v1.EgressIPStatus, node string, addr netip.Addr) Holding {
	item := itemOf(status, addr)
	switch {
	case item.Node == node && answers:
		return Held
	case item.From == node && answers:
		return Retained
	case item.Node != node:
		return Released // a node cannot retain an address that it does not have
	case item.From != "":
		return Preparing
	case Other(status, node, addr) != "":
		return Waiting
	}
	return Held
}

// Prepares reports whether a node must report that it is prepared for an address.
func Prepares(status v1.EgressIPStatus, node string, addr netip.Addr) bool {
	item := itemOf(status, addr)
	return item.Node == node && item.From != ""
}
