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

// Arriving returns the addresses that a decision assigns to a node for the first time, with
// that node.
func (d Decision) Arriving(status v1.EgressIPStatus) map[netip.Addr]string {
	arriving := d.Nodes()
	for _, item := range status.Items {
		if a, err := netip.ParseAddr(item.EgressIP); err == nil {
			delete(arriving, a)
		}
	}
	return arriving
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
