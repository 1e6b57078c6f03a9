package egressip

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature owns the rows and is part of the names of contributions.
const Feature = "egressip"

// Answers tells whether the status entry of a node has an address: it answers for it.
func Answers(status v1.EgressIPStatus, node string, addr netip.Addr) bool {
	for _, nodeStatus := range status.Programmed {
		if nodeStatus.Node == node && slices.Contains(nodeStatus.EgressIPs, addr.String()) {
			return true
		}
	}
	return false
}

// Awaits tells whether a node is prepared to take an address that another one still has.
func Awaits(status v1.EgressIPStatus, node string, addr netip.Addr) bool {
	nodeStatus, _ := NodeStatusOf(status, node)
	return slices.Contains(nodeStatus.Awaiting, addr.String())
}

// itemOf returns the item of an address; the zero item where there is none.
func itemOf(status v1.EgressIPStatus, addr netip.Addr) v1.EgressIPStatusItem {
	text := addr.String()
	for _, item := range status.Items {
		if item.EgressIP == text {
			return item
		}
	}
	return v1.EgressIPStatusItem{}
}

// ItemsOf returns the items of addresses that a node is to hold, or goes on answering for.
func ItemsOf(status v1.EgressIPStatus, node string) []v1.EgressIPStatusItem {
	var items []v1.EgressIPStatusItem
	for _, item := range status.Items {
		if item.Node == node || item.From == node {
			items = append(items, item)
		}
	}
	return items
}

// Other returns the node other than one whose status entry has an address; "" where there
// is none: only then may a node that is given the address answer for it.
func Other(status v1.EgressIPStatus, node string, addr netip.Addr) string {
	for _, nodeStatus := range status.Programmed {
		if nodeStatus.Node != node && slices.Contains(nodeStatus.EgressIPs, addr.String()) {
			return nodeStatus.Node
		}
	}
	return ""
}

// A digest has a part for each share of the pods, so that who waits for one of them
// waits for the pods of its share only, however many others come and go meanwhile.
const (
	shares    = 32
	shareSize = 12 // hexadecimal digits
)

// Digest identifies the pods that a node programs for the addresses it is given
// on its secondary networks: equal digests mean the same rules, and a part of it that
// is equal the same rules for the pods of that share. pods are the addresses of the
// pods that are the EgressIP's own; those of families that none of the given addresses
// has do not count. Neither need be sorted. It is empty where nothing is given.
func Digest(given []netip.Addr, pods []netip.Addr) string {
	if len(given) == 0 {
		return ""
	}
	given, pods = slices.Clone(given), slices.Clone(pods)
	slices.SortFunc(given, netip.Addr.Compare)
	slices.SortFunc(pods, netip.Addr.Compare)
	var parts [shares]hash.Hash
	for i := range parts {
		parts[i] = sha256.New()
		fmt.Fprintln(parts[i], given)
	}
	for _, p := range pods {
		if _, ok := topology.AddrOf(topology.FamilyOf(p), given); ok {
			fmt.Fprintln(parts[share(p)], p)
		}
	}
	var digest strings.Builder
	for _, part := range parts {
		digest.WriteString(hex.EncodeToString(part.Sum(nil))[:shareSize])
	}
	return digest.String()
}

// share returns the share of the pods that one with an address is in.
func share(pod netip.Addr) int {
	sum := sha256.Sum256(pod.AsSlice())
	return int(sum[0]) % shares
}

// SameFor tells whether two digests say the same of the pods of a share, that of the
// pod with an address.
func SameFor(pod netip.Addr, a, b string) bool {
	from, to := share(pod)*shareSize, (share(pod)+1)*shareSize
	return len(a) == shares*shareSize && len(b) == len(a) && a[from:to] == b[from:to]
}
