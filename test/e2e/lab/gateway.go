package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/client-go/rest"
)

// Gateway is a machine outside of the cluster through which a network is reached
// that all gateways lead to.
type Gateway struct {
	Name string
	// Addresses are those on the nodes' wire, IPv4 first.
	Addresses []netip.Addr
	// Behind are addresses that only this gateway leads to, IPv4 first.
	Behind []netip.Addr
	// MAC is the address of its interface.
	MAC string
}

// Beyond are the addresses that every gateway leads to, IPv4 first.
var Beyond = []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fd30::1")}

// AddGateway adds gateway number n, up to 99, which answers on every address it
// leads to and reaches the pods through their nodes.
func (l *Lab) AddGateway(ctx context.Context, n int) (Gateway, error) {
	g := Gateway{Name: fmt.Sprintf("gateway%d", n)}
	for _, text := range []string{fmt.Sprintf("172.18.0.%d", 150+n), fmt.Sprintf("fc00:f853:ccd:e793::15%02d", n)} {
		g.Addresses = append(g.Addresses, netip.MustParseAddr(text))
	}
	for _, text := range []string{fmt.Sprintf("172.31.%d.1", n), fmt.Sprintf("fd31::%d", n)} {
		g.Behind = append(g.Behind, netip.MustParseAddr(text))
	}
	if err := l.Kin.AddHost(ctx, g.Name, g.Addresses[0].String(), g.Addresses[1].String()); err != nil {
		return g, err
	}
	commands := []string{"sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"}
	for _, a := range []netip.Addr{Beyond[0], Beyond[1], g.Behind[0], g.Behind[1]} {
		nodad := ""
		if a.Is6() {
			nodad = " nodad"
		}
		commands = append(commands, fmt.Sprintf("ip addr add %s/%d dev lo%s", a, a.BitLen(), nodad))
	}
	nodes, err := l.Nodes(ctx)
	if err != nil {
		return g, err
	}
	for _, n := range nodes {
		for _, subnet := range n.Subnets {
			is4 := subnet.Addr().Is4()
			for _, via := range n.Gateway.Addrs {
				if via.Addr().Is4() == is4 {
					commands = append(commands, fmt.Sprintf("ip route replace %s via %s src %s", subnet, via.Addr(), ofFamily(g.Behind, is4)))
				}
			}
		}
	}
	commands = append(commands, "cat /sys/class/net/eth0/address")
	out, err := l.Kin.Exec(ctx, g.Name, "sh", "-ec", strings.Join(commands, "\n"))
	if err != nil {
		return g, err
	}
	g.MAC = strings.TrimSpace(out)
	return g, l.Serve(ctx, g.Name)
}

// StartBFD runs FRR's bfdd on a gateway, with every node as peer and all timers
// at interval, in milliseconds, times three.
func (l *Lab) StartBFD(ctx context.Context, g Gateway, interval int) error {
	nodes, err := l.Nodes(ctx)
	if err != nil {
		return err
	}
	var conf strings.Builder
	conf.WriteString("bfd\n")
	for _, n := range nodes {
		for _, peer := range n.Gateway.Addrs {
			fmt.Fprintf(&conf, " peer %s local-address %s interface eth0\n", peer.Addr(), ofFamily(g.Addresses, peer.Addr().Is4()))
			fmt.Fprintf(&conf, "  detect-multiplier 3\n  receive-interval %[1]d\n  transmit-interval %[1]d\n  no shutdown\n exit\n", interval)
		}
	}
	conf.WriteString("exit\n")
	const dir = "/run/frr-e2e"
	_, err = l.Kin.Exec(ctx, g.Name, "sh", "-ec", fmt.Sprintf(`mkdir -p %[1]s; chmod 777 %[1]s; printf %%s '%[2]s' >%[1]s/frr.conf
test -e %[1]s/zebra.pid || /usr/lib/frr/zebra -d -i %[1]s/zebra.pid -z %[1]s/zserv.api --vty_socket %[1]s -P 0 --log file:%[1]s/zebra.log -f /dev/null 2>&1
rm -f %[1]s/bfdd.pid
/usr/lib/frr/bfdd -d -i %[1]s/bfdd.pid -z %[1]s/zserv.api --vty_socket %[1]s --bfdctl %[1]s/bfdd.sock -P 0 --log file:%[1]s/bfdd.log -f %[1]s/frr.conf 2>&1`,
		dir, conf.String()))
	return err
}

// KillBFD ends the gateway's BFD at once, as a crash would.
func (l *Lab) KillBFD(ctx context.Context, g Gateway) error {
	_, err := l.Kin.Exec(ctx, g.Name, "sh", "-ec", "kill -KILL $(cat /run/frr-e2e/bfdd.pid)")
	return err
}

// Steered returns the connections of a node's datapath whose replies are sent to
// a gateway, one a line.
func (l *Lab) Steered(ctx context.Context, node string, g Gateway) (string, error) {
	out, err := l.Kin.Exec(ctx, node, "ovs-appctl", "dpctl/dump-conntrack")
	if err != nil {
		return "", err
	}
	label := strings.TrimLeft(strings.ReplaceAll(g.MAC, ":", ""), "0") + "00000000"
	var lines strings.Builder
	for line := range strings.Lines(out) {
		if strings.Contains(line, "labels=0x"+label) {
			lines.WriteString(line)
		}
	}
	return lines.String(), nil
}

// RESTConfig is for clients of the API that the lab has none of.
func (l *Lab) RESTConfig() *rest.Config { return rest.CopyConfig(l.rest) }
