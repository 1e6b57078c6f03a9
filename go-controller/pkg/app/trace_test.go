package app

import (
	"crypto/x509"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/tracer"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/trace"
)

// TestBridgeFlow: Open vSwitch understands the packet of each question.
func TestBridgeFlow(t *testing.T) {
	o := netnstest.New(t).OVS()
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "--",
		"add-port", "br0", "ovn0", "--", "set", "interface", "ovn0", "type=internal", "ofport_request=2")
	for _, flow := range []string{
		"priority=9,in_port=2,pkt_mark=0x3f2,tcp,nw_src=10.244.1.3,nw_dst=192.0.2.1,tp_dst=443,tcp_flags=+syn-ack,actions=LOCAL",
		"priority=9,in_port=2,udp,nw_src=10.244.1.3,nw_dst=192.0.2.1,tp_dst=443,actions=LOCAL",
		"priority=9,in_port=LOCAL,tcp6,ipv6_src=fd00::3,ipv6_dst=2001:db8::1,tp_dst=443,actions=output:2",
		"priority=9,in_port=LOCAL,udp6,ipv6_src=fd00::3,ipv6_dst=2001:db8::1,tp_dst=443,actions=output:2",
		"priority=0,actions=drop",
	} {
		o.Run("ovs-ofctl", "-OOpenFlow14", "add-flow", "br0", flow)
	}
	v4, v6 := netip.MustParseAddrPort("192.0.2.1:443"), netip.MustParseAddrPort("[2001:db8::1]:443")
	for _, tc := range []struct {
		q      trace.Question
		in, by string
	}{
		{trace.Question{Source: netip.MustParseAddr("10.244.1.3"), To: v4, Protocol: trace.TCP, Mark: 0x3f2}, "2", "LOCAL"},
		{trace.Question{Source: netip.MustParseAddr("10.244.1.3"), To: v4, Protocol: trace.UDP}, "2", "LOCAL"},
		{trace.Question{Source: netip.MustParseAddr("fd00::3"), To: v6, Protocol: trace.TCP, Host: true}, "LOCAL", "ovn0"},
		{trace.Question{Source: netip.MustParseAddr("fd00::3"), To: v6, Protocol: trace.UDP, Host: true}, "LOCAL", "ovn0"},
	} {
		text, err := tracer.Bridge(t.Context(), o.Dir, "br0", bridgeFlow(tc.q, tc.in, "02:42:ac:12:00:03"))
		if err != nil {
			t.Errorf("%+v: %v", tc.q, err)
			continue
		}
		if b := trace.ParseBridge("br0", text, map[int]string{2: "ovn0"}); len(b.Outputs) != 1 || b.Outputs[0] != tc.by {
			t.Errorf("%+v: leaves by %v, want %s:\n%s", tc.q, b.Outputs, tc.by, text)
		}
	}
}

// TestOwnCertificate: a server has a certificate that it can present.
func TestOwnCertificate(t *testing.T) {
	c, err := ownCertificate("n1")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil || cert.VerifyHostname("n1") != nil || cert.NotAfter.Before(time.Now().Add(365*24*time.Hour)) {
		t.Errorf("%v: %+v", err, cert)
	}
}
