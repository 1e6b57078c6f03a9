package conntrack

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// replyEthShift is where OVN keeps the MAC address in a label:
// ct_label.ecmp_reply_eth, bits 32 to 79.
const replyEthShift = 32

// protocols are those OVN remembers neighbours for.
var protocols = map[string]int{"tcp": 6, "udp": 17, "sctp": 132}

// ListSteered returns the connections of the OVS datapath in whose labels OVN has
// written the MAC address that replies go to. runDir is that of ovs-vswitchd.
func ListSteered(ctx context.Context, runDir string) ([]host.Steered, error) {
	cmd := exec.CommandContext(ctx, "ovs-appctl", "--timeout=10", "--target=ovs-vswitchd", "dpctl/dump-conntrack")
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+runDir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("dump conntrack of OVS: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var steered []host.Steered
	for line := range strings.Lines(string(out)) {
		if s, ok := parseSteered(strings.TrimSpace(line)); ok {
			steered = append(steered, s)
		}
	}
	return steered, nil
}

// FlushSteered deletes a connection that ListSteered returned.
func FlushSteered(ctx context.Context, runDir string, s host.Steered) error {
	args := []string{"--timeout=10", "--target=ovs-vswitchd", "dpctl/flush-conntrack", fmt.Sprintf("zone=%d", s.Zone), s.Tuple}
	if err := appctl(ctx, runDir, args...); err != nil {
		return fmt.Errorf("flush conntrack of OVS: %w", err)
	}
	return nil
}

// parseSteered reads a line of dpctl/dump-conntrack:
//
//	tcp,orig=(src=172.31.51.1,dst=10.244.1.3,sport=48554,dport=8080),reply=(...),zone=6,mark=65536,labels=0x242ac12003300000000,protoinfo=(...)
func parseSteered(line string) (host.Steered, bool) {
	name, rest, _ := strings.Cut(line, ",")
	proto, ok := protocols[name]
	if !ok {
		return host.Steered{}, false
	}
	orig, ok := between(rest, "orig=(", ")")
	if !ok {
		return host.Steered{}, false
	}
	mac, ok := replyEth(field(rest, "labels"))
	if !ok {
		return host.Steered{}, false
	}
	zone, err := strconv.ParseUint(field(rest, "zone"), 10, 16)
	if err != nil && field(rest, "zone") != "" {
		return host.Steered{}, false
	}
	src, err := netip.ParseAddr(field(orig, "src"))
	if err != nil {
		return host.Steered{}, false
	}
	dst, err := netip.ParseAddr(field(orig, "dst"))
	if err != nil {
		return host.Steered{}, false
	}
	ct := "ct_nw"
	if dst.Is6() {
		ct = "ct_ipv6"
	}
	return host.Steered{
		Zone: uint16(zone), Dst: dst, Neighbor: mac,
		Tuple: fmt.Sprintf("%[1]s_src=%[2]s,%[1]s_dst=%[3]s,ct_nw_proto=%[4]d,ct_tp_src=%[5]s,ct_tp_dst=%[6]s",
			ct, src, dst, proto, field(orig, "sport"), field(orig, "dport")),
	}, true
}

// replyEth returns the MAC address in a label; false where there is none.
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

func between(s, open, end string) (string, bool) {
	_, s, ok := strings.Cut(s, open)
	if !ok {
		return "", false
	}
	s, _, ok = strings.Cut(s, end)
	return s, ok
}

// field returns the value of "name=value" in a list with commas between them,
// skipping what is in parentheses.
func field(s, name string) string {
	depth, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i == len(s) || s[i] == ',' && depth == 0 {
			if key, value, ok := strings.Cut(s[start:i], "="); ok && key == name {
				return value
			}
			start = i + 1
			continue
		}
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
	}
	return ""
}
