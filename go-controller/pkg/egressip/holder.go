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

// Answers tells whether a node answers for an address, according to its status entry.
func Answers(status v1.EgressIPStatus, node string, addr netip.Addr) bool {
	for _, nodeStatus := range status.Programmed {
		if nodeStatus.Node == node && slices.Contains(nodeStatus.EgressIPs, addr.String()) {
			return true
		}
	}
	return false
}

// Awaits tells whether a node is prepared to take an address that another node still has.
func Awaits(status v1.EgressIPStatus, node string, addr netip.Addr) bool {
	nodeStatus, _ := NodeStatusOf(status, node)
	return slices.Contains(nodeStatus.Awaiting, addr.String())
}

// itemOf returns the item of an address, or the zero item if there is none.
func itemOf(status v1.EgressIPStatus, addr netip.Addr) v1.EgressIPStatusItem {
	text := addr.String()
	for _, item := range status.Items {
		if item.EgressIP == text {
			return item
		}
	}
	return v1.EgressIPStatusItem{}
}

// ItemsOf returns the items of addresses that a node is to hold or keeps answering for.
func ItemsOf(status v1.EgressIPStatus, node string) []v1.EgressIPStatusItem {
	var items []v1.EgressIPStatusItem
	for _, item := range status.Items {
		if item.Node == node || item.From == node {
			items = append(items, item)
		}
	}
	return items
}

// Other returns another node whose status entry has an address, or "" if there is none. Only
// then may node answer for the address.
func Other(status v1.EgressIPStatus, node string, addr netip.Addr) string {
	for _, nodeStatus := range status.Programmed {
		if nodeStatus.Node != node && slices.Contains(nodeStatus.EgressIPs, addr.String()) {
			return nodeStatus.Node
		}
	}
	return ""
}

// A digest has a part for each share of the pods, so that a pod that waits for its rules waits
// for the pods of its share only, however many others come and go meanwhile.
const (
	shares    = 32
	shareSize = 12 // hexadecimal digits
)

// Digest identifies the pods that a node programs for its addresses on secondary networks:
// equal digests mean the same rules, and equal parts the same rules for the pods of that
// share. given are the node's addresses, pods the addresses of the pods of the EgressIP;
// families without a given address are ignored. Neither need be sorted. The digest is empty
// if given is.
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

// share returns the share that contains the pod with an address.
func share(pod netip.Addr) int {
	sum := sha256.Sum256(pod.AsSlice())
	return int(sum[0]) % shares
}

// SameFor tells whether two digests agree about the share that contains the pod with an
// address.
func SameFor(pod netip.Addr, a, b string) bool {
	from, to := share(pod)*shareSize, (share(pod)+1)*shareSize
	return len(a) == shares*shareSize && len(b) == len(a) && a[from:to] == b[from:to]
}
