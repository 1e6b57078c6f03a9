package link

import (
	"fmt"
	"strings"

	"github.com/safchain/ethtool"
)

// OffloadsOff disables checksum and segmentation offload for what a link sends. The userspace
// datapath of OVS reads raw frames, so the peer of each veth that it owns must send complete ones:
// otherwise ping works and TCP does not.
func OffloadsOff(name string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("turn offloads of link %s off: %w", name, err)
	}
	defer e.Close()
	states, err := e.FeaturesWithState(name)
	if err != nil {
		return fmt.Errorf("read the offloads of link %s: %w", name, err)
	}
	off := map[string]bool{}
	for feature, s := range states {
		if s.Available && s.Active && !s.NeverChanged && isSendOffload(feature) {
			off[feature] = false
		}
	}
	if len(off) == 0 {
		return nil
	}
	if err := e.Change(name, off); err != nil {
		return fmt.Errorf("turn offloads of link %s off: %w", name, err)
	}
	return nil
}

// isSendOffload reports whether a feature leaves work to a device that does not exist here.
func isSendOffload(feature string) bool {
	if !strings.HasPrefix(feature, "tx-") {
		return false
	}
	return strings.Contains(feature, "checksum") || strings.Contains(feature, "segmentation")
}
