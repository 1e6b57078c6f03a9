package conntrack

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// replyEthShift is the position of the MAC address that OVN keeps in a label:
// ct_label.ecmp_reply_eth, bits 32 to 79.
const replyEthShift = 32

// ListSteered returns the connections of the OVS datapath that OVN has labelled with the MAC
// address that replies go to. runDir is the directory of ovs-vswitchd's control socket.
func ListSteered(ctx context.Context, runDir string) ([]host.Steered, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := datapaths(ctx, runDir)
	var steered []host.Steered
	for _, d := range all {
		entries, errRead := d.entries(ctx)
		err = errors.Join(err, errRead)
		for _, e := range entries {
			if s, ok := steeredBy(e); ok {
				steered = append(steered, s)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("dump conntrack of OVS: %w", err)
	}
	return steered, nil
}

// FlushSteered deletes connections that ListSteered returned.
func FlushSteered(ctx context.Context, runDir string, connections []host.Steered) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	args := make([][]string, 0, len(connections))
	for _, s := range connections {
		args = append(args, entryArgs(s.Zone, s.Tuple))
	}
	all, err := datapaths(ctx, runDir)
	for _, d := range all {
		_, errFlush := d.flushEach(ctx, args)
		err = errors.Join(err, errFlush)
	}
	if err != nil {
		return fmt.Errorf("flush conntrack of OVS: %w", err)
	}
	return nil
}

// steeredBy returns the connection of an entry, or false if its replies follow the routes. OVN
// remembers neighbours only for protocols with ports.
func steeredBy(e datapathEntry) (host.Steered, bool) {
	mac, ok := replyEth(e.labels)
	if !ok || e.tuple() == "" {
		return host.Steered{}, false
	}
	return host.Steered{Zone: e.zone, Dst: e.orig.dst, Neighbor: mac, Tuple: e.tuple()}, true
}

// replyEth returns the MAC address in a label, or false if there is none.
func replyEth(label string) (string, bool) {
	n, ok := new(big.Int).SetString(strings.TrimPrefix(label, "0x"), 16)
	if !ok || n.Sign() < 0 {
		return "", false
	}
	bits := new(big.Int).Rsh(n, replyEthShift)
	mac := bits.And(bits, big.NewInt(1<<48-1)).Uint64()
	if mac == 0 {
		return "", false
	}
	hw := make(net.HardwareAddr, 6)
	for i := range hw {
		hw[i] = byte(mac >> (8 * (5 - i)))
	}
	return hw.String(), true
}
