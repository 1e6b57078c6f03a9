package conntrack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// DefaultRunDir is where ovs-vswitchd keeps its control socket.
const DefaultRunDir = "/var/run/openvswitch"

// FlushOVS deletes matching entries of one zone of the OVS datapath, zone 0
// being all zones. runDir is that of ovs-vswitchd, DefaultRunDir on a node.
func FlushOVS(ctx context.Context, runDir string, zone uint16, f Filter) error {
	families, err := f.families()
	if err == nil && f.Mark != 0 {
		err = errors.New("OVS cannot filter by mark")
	}
	if err != nil {
		return fmt.Errorf("flush conntrack of OVS: %w", err)
	}
	for _, family := range families {
		args := []string{"--timeout=10", "--target=ovs-vswitchd", "dpctl/flush-conntrack"}
		if zone != 0 {
			args = append(args, fmt.Sprintf("zone=%d", zone))
		}
		args = append(args, f.tuple(family, f.Src, f.Dst, f.DstPort))
		if f.ReplySrc.IsValid() || f.ReplyDst.IsValid() {
			args = append(args, f.tuple(family, f.ReplySrc, f.ReplyDst, 0))
		}
		if err := appctl(ctx, runDir, args...); err != nil {
			return fmt.Errorf("flush conntrack of OVS for %s: %w", family, err)
		}
	}
	return nil
}

// tuple writes one direction of f as dpctl/flush-conntrack takes it.
func (f Filter) tuple(family topology.Family, src, dst netip.Addr, port uint16) string {
	name := "ct_nw"
	if family == topology.IPv6 {
		name = "ct_ipv6"
	}
	var parts []string
	if src.IsValid() {
		parts = append(parts, name+"_src="+src.String())
	}
	if dst.IsValid() {
		parts = append(parts, name+"_dst="+dst.String())
	}
	if f.Protocol != 0 {
		parts = append(parts, fmt.Sprintf("ct_nw_proto=%d", f.Protocol))
	}
	if port != 0 {
		parts = append(parts, fmt.Sprintf("ct_tp_dst=%d", port))
	}
	return strings.Join(parts, ",")
}

func appctl(ctx context.Context, runDir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "ovs-appctl", args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+runDir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run ovs-appctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
