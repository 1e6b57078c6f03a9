package egressip

import (
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// Former is a node that may still hold an address for another EgressIP, or for a deleted one.
type Former struct {
	Addr netip.Addr
	Node string
}

// Arriving returns the addresses that a decision assigns to a node while nobody is known to have them for this
// EgressIP, with that node: they have no item yet, or the node in the item has never taken them.
func (d Decision) Arriving(status v1.EgressIPStatus) map[netip.Addr]string {
	arriving := d.Nodes()
	for a, node := range arriving {
		item := itemOf(status, a)
		if item.Node == node || Answers(status, item.Node, a) || Answers(status, item.From, a) {
			delete(arriving, a)
		}
	}
	return arriving
}

// Assigned reports whether an address has an item.
func Assigned(status v1.EgressIPStatus, addr netip.Addr) bool { return itemOf(status, addr).Node != "" }

// NodeWrote reports whether it must have been a node itself that changed its status entry. The master may add
// former holders, and remove addresses that the node prepared for: neither says that the node acts.
func NodeWrote(old, new v1.EgressIPStatus, node string) bool {
	was, _ := NodeStatusOf(old, node)
	now, _ := NodeStatusOf(new, node)
	was.Node, now.Node = node, node
	if len(now.Awaiting) < len(was.Awaiting) {
		now.Awaiting = was.Awaiting
	}
	given := ItemsOf(new, node)
	now.EgressIPs = slices.DeleteFunc(slices.Clone(now.EgressIPs), func(text string) bool { // a node adds only what it is given
		return !slices.Contains(was.EgressIPs, text) && !slices.ContainsFunc(given, func(item v1.EgressIPStatusItem) bool { return item.EgressIP == text })
	})
	return !SameNodeStatus(was, now)
}

// KeepFormerHolders adds former holders to the status entries of nodes: as with any other status entry, the
// next node waits until the entry is removed, which the former holder does once it has released the address.
func KeepFormerHolders(words []v1.ProgrammedStatus, former []Former) []v1.ProgrammedStatus {
	words = slices.Clone(words)
	for _, f := range former {
		i := slices.IndexFunc(words, func(w v1.ProgrammedStatus) bool { return w.Node == f.Node })
		if i < 0 {
			i, words = len(words), append(words, v1.ProgrammedStatus{Node: f.Node})
		}
		if text := f.Addr.String(); !slices.Contains(words[i].EgressIPs, text) {
			words[i].EgressIPs = append(slices.Clone(words[i].EgressIPs), text)
		}
	}
	return words
}
