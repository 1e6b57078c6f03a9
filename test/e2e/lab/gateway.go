package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Gateway is a machine outside the cluster that routes to a network that all gateways lead to.
type Gateway struct {
	Name string
	// Addresses are the gateway's addresses on the nodes' wire, IPv4 first.
	Addresses []netip.Addr
	// Behind are addresses that are reached only through this gateway, IPv4 first.
	Behind []netip.Addr
	// MAC is the MAC address of its interface.
	MAC string
	// second reports whether the nodes reach it on another wire than their own.
	second bool
}

// port returns the port of a node's gateway router through which it reaches the gateway.
func (g Gateway) port(node string) string {
	if g.second {
		return topology.ExternalGatewayPort(node)
	}
	return topology.GatewayToExternal(node)
}

// Node returns the addresses of a node on the gateway's wire.
func (g Gateway) Node(n topology.Node) []netip.Prefix {
	if g.second {
		return n.Gateway.External.Addrs
	}
	return n.Gateway.Addrs
}

// Beyond are addresses that are reached through every gateway, IPv4 first.
var Beyond = []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fd30::1")}

// AddGateway adds gateway number n, up to 99, which answers on every address that is reached
// through it and routes to the pods through their nodes.
func (l *Lab) AddGateway(ctx context.Context, n int) (Gateway, error) {
	return l.addGateway(ctx, n, "", "172.18.0", "fc00:f853:ccd:e793")
}

// AddGatewayOn is AddGateway on another wire than the nodes' own: that of the nodes' uplink for
// external gateways, with the given address prefixes.
func (l *Lab) AddGatewayOn(ctx context.Context, n int, network, prefix4, prefix6 string) (Gateway, error) {
	return l.addGateway(ctx, n, network, prefix4, prefix6)
}

func (l *Lab) addGateway(ctx context.Context, n int, network, prefix4, prefix6 string) (Gateway, error) {
	g := Gateway{Name: fmt.Sprintf("gateway%d", n), second: network != ""}
	for _, text := range []string{fmt.Sprintf("%s.%d", prefix4, 150+n), fmt.Sprintf("%s::15%02d", prefix6, n)} {
		g.Addresses = append(g.Addresses, netip.MustParseAddr(text))
	}
	for _, text := range []string{fmt.Sprintf("172.31.%d.1", n), fmt.Sprintf("fd31::%d", n)} {
		g.Behind = append(g.Behind, netip.MustParseAddr(text))
	}
	g.Addresses, g.Behind = l.OfFamilies(g.Addresses), l.OfFamilies(g.Behind)
	if err := l.Kin.AddHost(ctx, g.Name, network, texts(g.Addresses)...); err != nil {
		return g, err
	}
	commands := []string{"sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"}
	for _, a := range append(l.OfFamilies(Beyond), g.Behind...) {
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
			for _, via := range g.Node(n) {
				if via.Addr().Is4() == is4 {
					commands = append(commands, fmt.Sprintf("ip route replace %s via %s src %s", subnet, via.Addr(), OfFamily(g.Behind, is4)))
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

// StartBFD runs FRR's bfdd on a gateway, with every node as a peer and all timers set to interval,
// in milliseconds, with a multiplier of three.
func (l *Lab) StartBFD(ctx context.Context, g Gateway, interval int) error {
	nodes, err := l.Nodes(ctx)
	if err != nil {
		return err
	}
	var conf strings.Builder
	conf.WriteString("bfd\n")
	for _, n := range nodes {
		for _, peer := range g.Node(n) {
			fmt.Fprintf(&conf, " peer %s local-address %s interface eth0\n", peer.Addr(), OfFamily(g.Addresses, peer.Addr().Is4()))
			fmt.Fprintf(&conf, "  detect-multiplier 3\n  receive-interval %[1]d\n  transmit-interval %[1]d\n  no shutdown\n exit\n", interval)
		}
	}
	conf.WriteString("exit\n")
	return l.startFRR(ctx, g.Name, "bfdd", conf.String(), "--bfdctl", frrDir+"/bfdd.sock")
}

// KillBFD kills the gateway's BFD daemon, as if it crashed.
func (l *Lab) KillBFD(ctx context.Context, g Gateway) error {
	_, err := l.Kin.Exec(ctx, g.Name, "sh", "-ec", "kill -KILL $(cat "+frrDir+"/bfdd.pid)")
	return err
}

// Steered returns the connections of a node's datapath whose replies are sent to a gateway, one per
// line.
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

// RunFlood starts a pod that sends datagrams to a port of each address every few milliseconds.
func (l *Lab) RunFlood(ctx context.Context, name, node string, to []netip.Addr, port uint16) (Pod, error) {
	targets := make([]string, len(to))
	for i, a := range to {
		targets[i] = netip.AddrPortFrom(a, port).String()
	}
	return l.runPod(ctx, name, node, nil, "send", "-every", "20ms", "-to", strings.Join(targets, ","))
}

// RunOnHost starts a pod on the host network that does nothing.
func (l *Lab) RunOnHost(ctx context.Context, name, node string, labels map[string]string) (Pod, error) {
	var grace int64
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "probe", Image: ProbeImage, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"send", "-after", "24h"},
			}},
		},
	}
	if _, err := l.Kube.CoreV1().Pods(Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return Pod{}, fmt.Errorf("create pod: %w", err)
	}
	return l.WaitPod(ctx, name, time.Minute)
}

// BFD returns OVN's state of a node's session with an address of a gateway: "up", "down", or empty
// if there is no session.
func (l *Lab) BFD(ctx context.Context, node string, g Gateway, address netip.Addr) (string, error) {
	out, err := l.Kin.Exec(ctx, ControlPlane, "ovn-nbctl", "--bare", "--columns=status", "find", "BFD",
		"logical_port="+g.port(node), fmt.Sprintf("dst_ip=%q", address.String()))
	return strings.TrimSpace(out), err
}

// RESTConfig returns a copy of the configuration, for API clients that the lab does not have.
func (l *Lab) RESTConfig() *rest.Config { return rest.CopyConfig(l.rest) }
