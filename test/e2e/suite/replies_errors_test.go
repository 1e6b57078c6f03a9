package suite

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// closedPort is a UDP port of the Services on which no pod listens.
const closedPort = speakPort + 1

// unusedPort is a UDP port that no program sends to.
const unusedPort = 7091

// errors has outside clients send to a port on which no pod listens. The pods answer with ICMP errors,
// which routers cannot recognize as replies: they may get lost, but none may leave with another
// address than the one that the client sent to.
func (all repliesTest) errors(t *testing.T) {
	for _, r := range all { // one after the other: the captures would see the errors of both
		// "Destination unreachable" about datagrams to the port, and datagrams to a port that nobody uses.
		filter := fmt.Sprintf("(icmp[0] == 3 and icmp[30:2] == %[1]d) or (icmp6 and ip6[40] == 1 and ip6[90:2] == %[1]d) or udp dst port %[2]d",
			closedPort, unusedPort)
		sent := newFilteredCapture(t, r.suite, filter, unusedPort, r.ingress)
		// In both families at once: each has counters and a limit of its own for errors.
		err := atOnce(len(r.ingress), func(i int) error { return r.errors(t.Context(), netip.AddrPortFrom(r.ingress[i], closedPort)) })
		if err != nil {
			t.Error(err)
		}
		t.Logf("%s: %d errors arrived, from addresses that clients sent to", r.name, sent.inspect(t))
	}
}

// errors sends to a port until the pods have sent some errors.
func (r *replying) errors(ctx context.Context, to netip.AddrPort) error {
	before, err := r.unreachable(ctx, to.Addr())
	if err != nil {
		return err
	}
	return lab.Until(ctx, 20*time.Second, "a pod to refuse what is sent to "+to.String(), func(ctx context.Context) error {
		if out, err := r.Call(ctx, lab.Outside, false, "ask", "-timeout", "100ms", to.String()); err == nil {
			return fmt.Errorf("somebody says %q", out)
		}
		now, err := r.unreachable(ctx, to.Addr())
		if err == nil && now < before+3 {
			err = fmt.Errorf("the pods have sent %d errors, before it were %d", now, before)
		}
		return err
	})
}

// unreachable returns how many ICMP errors of this kind the kernels of the pods have sent, in the family
// of an address.
func (r *replying) unreachable(ctx context.Context, to netip.Addr) (sum int, err error) {
	// The fields of ICMP stand in two lines, of which the first has the names.
	show := `awk '/^Icmp:/ && !n {n = split($0, name)} /^Icmp: [0-9]/ {for (i = 2; i <= n; i++) if (name[i] == "OutDestUnreachs") print $i}' /proc/self/net/snmp`
	if !to.Is4() {
		show = `awk '$1 == "Icmp6OutDestUnreachs" {print $2}' /proc/self/net/snmp6`
	}
	for i, node := range nodes[1:] {
		id := lab.Namespace + "_" + r.pods[i]
		out, err := r.Kin.Exec(ctx, node, "sh", "-c", fmt.Sprintf(
			`ns=$(ovs-vsctl --bare --columns=external_ids find Interface external_ids:iface-id=%s | tr ' ' '\n' | sed -n 's/^netns=//p')
			nsenter --net="$ns" %s`, id, show))
		var n int
		if err == nil {
			_, err = fmt.Sscan(out, &n)
		}
		if err != nil {
			return 0, fmt.Errorf("errors that %s has sent: %w: %s", r.pods[i], err, out)
		}
		sum += n
	}
	return sum, nil
}
