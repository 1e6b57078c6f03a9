package egressip

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature owns the rows and is part of the names of contributions.
const Feature = "egressip"

// Holds tells whether the word of a node has an address: it answers for it.
func Holds(status v1.EgressIPStatus, node string, addr netip.Addr) bool {
	for _, word := range status.Programmed {
		if word.Node == node && slices.Contains(word.EgressIPs, addr.String()) {
			return true
		}
	}
	return false
}

// Given returns the items that give a node addresses.
func Given(status v1.EgressIPStatus, node string) []v1.EgressIPStatusItem {
	var items []v1.EgressIPStatusItem
	for _, item := range status.Items {
		if item.Node == node {
			items = append(items, item)
		}
	}
	return items
}

// Other returns the node other than one whose word has an address; "" where there
// is none: only then may a node that is given the address answer for it.
func Other(status v1.EgressIPStatus, node string, addr netip.Addr) string {
	for _, word := range status.Programmed {
		if word.Node != node && slices.Contains(word.EgressIPs, addr.String()) {
			return word.Node
		}
	}
	return ""
}

// Digest identifies the pods that a node programs for the addresses it is given
// on its secondary networks: equal digests mean the same rules. pods are the
// addresses of the pods that are the EgressIP's own; those of families that none
// of the given addresses has do not count. Neither need be sorted. It is empty
// where nothing is given.
func Digest(given []netip.Addr, pods []netip.Addr) string {
	if len(given) == 0 {
		return ""
	}
	given, pods = slices.Clone(given), slices.Clone(pods)
	slices.SortFunc(given, netip.Addr.Compare)
	slices.SortFunc(pods, netip.Addr.Compare)
	sum := sha256.New()
	fmt.Fprintln(sum, given)
	for _, p := range pods {
		if _, ok := topology.AddrOf(topology.FamilyOf(p), given); ok {
			fmt.Fprintln(sum, p)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
