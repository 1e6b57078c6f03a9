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

// Feature is the owner of the rows and part of the names of contributions.
const Feature = "egressip"

// Answers reports whether a node's status entry lists an address, which means that the node answers for it.
func Answers(status v1.EgressIPStatus, node string, addr netip.Addr) bool {
	for _, nodeStatus := range status.Programmed {
		if nodeStatus.Node == node && slices.Contains(nodeStatus.EgressIPs, addr.String()) {
			return true
		}
	}
	return false
}

// Awaits reports whether a node is prepared to take an address that another node still has.
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

// ItemsOf returns the items of the addresses that a node is to hold or retains.
func ItemsOf(status v1.EgressIPStatus, node string) []v1.EgressIPStatusItem {
	var items []v1.EgressIPStatusItem
	for _, item := range status.Items {
		if item.Node == node || item.From == node {
			items = append(items, item)
		}
	}
	return items
}

// Other returns another node whose status entry lists an address, or "" if there is none.
// Only if there is none may a node that is given the address answer for it.
func Other(status v1.EgressIPStatus, node string, addr netip.Addr) string {
	for _, nodeStatus := range status.Programmed {
		if nodeStatus.Node != node && slices.Contains(nodeStatus.EgressIPs, addr.String()) {
			return nodeStatus.Node
		}
	}
	return ""
}

// A digest has a part for each share of the pods. Whoever waits for one pod
// waits for that pod's share only, however many other pods come and go meanwhile.
const (
	shares    = 32
	shareSize = 12 // hexadecimal digits
)

// Digest identifies the pods that a node programs for the addresses it is given
// on its secondary networks: equal digests mean equal rules, and an equal part means
// equal rules for the pods of that share. pods are the addresses of the pods that the
// EgressIP has; families without a given address do not count. Neither argument need be
// sorted. The digest is empty if no address is given.
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

// share returns the share of the pod with the given address.
func share(pod netip.Addr) int {
	sum := sha256.Sum256(pod.AsSlice())
	return int(sum[0]) % shares
}

// SameShare reports whether two digests agree on the share of the pod with the given
// address.
func SameShare(pod netip.Addr, a, b string) bool {
	from, to := share(pod)*shareSize, (share(pod)+1)*shareSize
	return len(a) == shares*shareSize && len(b) == len(a) && a[from:to] == b[from:to]
}
