package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/authn"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/openflow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/tracer"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nodeinfo"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/trace"
	tracenode "github.com/ovnkube/ovnkube/go-controller/pkg/trace/node"
)

// selfSigned is the lifetime of the process's certificate, which nobody checks.
const selfSigned = 10 * 365 * 24 * time.Hour

// traces returns the server that answers questions about packets.
func (n *node) traces(all *nodeinfo.View, pods informers.SharedInformerFactory) (runner, error) {
	cfg := n.env.Config
	listener, err := listenAt("--trace-bind-address", cfg.Trace.BindAddress)
	if err != nil {
		return nil, err
	}
	cert, err := ownCertificate(n.name)
	if err != nil {
		listener.Close()
		return nil, err
	}
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	handler := tracenode.New(tracenode.Deps{
		Node: n.name, Pods: pods.Core().V1().Pods().Lister(), Subnets: n.subnets,
		Reviews: authn.New(n.env.Kube, trace.Audience(n.name)),
		Peer: func(name string) (netip.AddrPort, bool) {
			obj, err := all.Lister().Get(name)
			if err != nil {
				return netip.AddrPort{}, false
			}
			for _, a := range obj.Status.Addresses {
				if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
					return netip.AddrPortFrom(addr, port), true
				}
			}
			return netip.AddrPort{}, false
		},
		Logical: logicalTrace(cfg.OVNSouth), Kernel: n.kernelTrace, Bridge: n.bridgeTrace,
		Connection: connectionTrace, Probe: n.sendProbe,
	})
	s := &server{
		listener: tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}),
		http:     httpServer(handler),
	}
	return loop(s.serve), nil
}

// ownCertificate creates a certificate for this process. The proxy of the API server does not
// verify it, as it does not verify a kubelet's without a configured CA.
func ownCertificate(name string) (tls.Certificate, error) {
	now := time.Now()
	authority, err := pki.NewAuthority("ovnkube-own", now, selfSigned)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, key, err := authority.Issue(pki.Subject{Name: name, DNS: []string{name}, Server: true}, now, selfSigned)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}, nil
}

// logicalTrace returns a function that traces packets through OVN with its southbound database.
func logicalTrace(d config.Database) func(context.Context, string, string, int) (trace.OVN, error) {
	db := tracer.Database{Address: d.Remote()}
	if d.Secure() {
		db.PrivateKey, db.Certificate, db.CACert = d.PrivKey, d.Cert, d.CACert
	}
	return func(ctx context.Context, datapath, packet string, choice int) (trace.OVN, error) {
		text, err := tracer.Logical(ctx, db, datapath, packet, choice)
		return trace.ParseOVN(text), err
	}
}

// externalBridge returns the name of this node's external bridge, or of the one for external
// gateways.
func (n *node) externalBridge(second bool) (string, error) {
	obj, err := n.self.Lister().Get(n.name)
	if err != nil {
		return "", fmt.Errorf("find the node: %w", err)
	}
	node, _ := kube.Node(obj) // invalid annotations are not used
	id := node.Gateway.InterfaceID
	if second {
		id = node.Gateway.External.InterfaceID
	}
	bridge, ok := strings.CutSuffix(id, "_"+n.name)
	if !ok || bridge == "" {
		return "", errors.New("the node has no external bridge yet")
	}
	return bridge, nil
}

// kernelTrace asks the kernel what it would do with a packet that comes in by the management port.
func (n *node) kernelTrace(ctx context.Context, q trace.Question) (trace.Kernel, error) {
	bridge, err := n.externalBridge(false)
	if err != nil {
		return trace.Kernel{}, err
	}
	r, err := tracer.Lookup(tracer.Packet{Source: q.Source, Destination: q.To.Addr(), In: topology.ManagementPort, Mark: q.Mark})
	if err != nil {
		return trace.Kernel{}, err
	}
	k := trace.Kernel{Rules: r.Rules, Interface: r.Interface, Gateway: r.Gateway, Table: r.Table, Unroutable: r.Unroutable, Local: r.Local,
		Bridge: bridge, ToBridge: r.Interface == bridge, Source: q.Source}
	if r.Unroutable != "" || r.Local {
		return k, nil
	}
	local, err := tracer.LocalAddresses()
	if err != nil {
		return k, err
	}
	packet := trace.Packet{Source: q.Source, Destination: q.To.Addr(), Protocol: q.Protocol, Port: q.To.Port(),
		In: topology.ManagementPort, Out: r.Interface, Mark: q.Mark, Local: func(a netip.Addr) bool { return local[a] }}
	f := topology.FamilyOf(q.Source)
	filter, err := iptables.Save(ctx, f, "filter")
	if err != nil {
		return k, err
	}
	k.Forward = trace.Walk(filter, "FORWARD", packet)
	nat, err := iptables.Save(ctx, f, "nat")
	if err != nil {
		return k, err
	}
	packet.In = "" // not known there
	k.NAT = trace.Walk(nat, "POSTROUTING", packet)
	switch k.NAT.Target {
	case "SNAT":
		k.Source = k.NAT.Source
	case "MASQUERADE":
		k.Source = r.Source
	}
	return k, nil
}

// anyMAC stands for the MAC address of the next hop, on which no flow depends.
const anyMAC = "02:00:00:00:00:01"

// bridgeTrace asks Open vSwitch what it would do with a packet that enters the external bridge.
func (n *node) bridgeTrace(ctx context.Context, q trace.Question) (trace.Bridge, error) {
	bridge, err := n.externalBridge(q.Second)
	if err != nil {
		return trace.Bridge{}, err
	}
	mac, err := link.MAC(bridge)
	if err != nil {
		return trace.Bridge{}, err
	}
	ports, err := n.switches.Ports(ctx, bridge)
	if err != nil {
		return trace.Bridge{}, fmt.Errorf("list the ports of %s: %w", bridge, err)
	}
	in, names := "LOCAL", map[int]string{}
	for _, p := range ports {
		names[p.OFPort] = p.Name
		if !q.Host && p.Name == topology.PatchPort(bridge, n.name) {
			in = strconv.Itoa(p.OFPort)
		}
	}
	if in == "LOCAL" && !q.Host {
		return trace.Bridge{}, fmt.Errorf("bridge %s has no port to OVN", bridge)
	}
	text, err := tracer.Bridge(ctx, openflow.DefaultRunDir, bridge, bridgeFlow(q, in, mac))
	return trace.ParseBridge(bridge, text, names), err
}

// bridgeFlow returns a packet in the syntax of ofproto/trace.
func bridgeFlow(q trace.Question, in, mac string) string {
	protocol, src, dst := q.Protocol, "nw_src", "nw_dst"
	if q.Source.Is6() {
		protocol, src, dst = q.Protocol+"6", "ipv6_src", "ipv6_dst"
	}
	flow := fmt.Sprintf("in_port=%s,%s,dl_src=%s,dl_dst=%s,%s=%s,%s=%s,nw_ttl=62,%s_src=%d,%s_dst=%d",
		in, protocol, mac, anyMAC, src, q.Source, dst, q.To.Addr(), q.Protocol, trace.SourcePort, q.Protocol, q.To.Port())
	if q.Protocol == trace.TCP {
		flow += ",tcp_flags=syn"
	}
	if q.Mark != 0 {
		flow += fmt.Sprintf(",pkt_mark=%#x", q.Mark)
	}
	return flow
}
