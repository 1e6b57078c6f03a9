package trace

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func sprint(a ...any) string { return strings.TrimSpace(fmt.Sprintln(a...)) }

func TestQuestions(t *testing.T) {
	to := netip.MustParseAddrPort("192.0.2.1:443")
	for _, q := range []Question{
		{Node: "ovn-worker", About: AboutOVN, Pod: "prod/web", To: to, Protocol: TCP},
		{Node: "ovn-worker", About: AboutOVN, Pod: "prod/web-0.a", To: to, Protocol: UDP, Choice: 3},
		{Node: "n.example", About: AboutKernel, Source: netip.MustParseAddr("10.244.1.3"), To: to, Protocol: TCP, Mark: 0x3f0},
		{Node: "n", About: AboutBridge, Source: netip.MustParseAddr("fd00::1"), To: netip.MustParseAddrPort("[2001:db8::1]:1"), Protocol: TCP, Host: true},
		{Node: "n", About: AboutConnection, Source: netip.MustParseAddr("10.244.1.3"), Port: 40123, To: to, Protocol: UDP},
		{Node: "n", About: AboutProbe, Pod: "prod/web", To: to, Protocol: TCP},
	} {
		path, values := q.Path()
		got, err := Decode(path, values)
		if got != q || err != nil {
			t.Errorf("%+v comes back as %+v, %v", q, got, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tc := range []struct{ path, query, want string }{
		{"/trace/v1/n1", "", "no path of a question"},
		{"/other", "", "no path of a question"},
		{"/trace/v1/../ovn", "", "no path of a question"},
		{"/trace/v1/N_1/ovn", "", "no path of a question"},
		{"/trace/v1/n1/shell", "", "unknown question"},
		{"/trace/v1/n1/ovn", "", "protocol"},
		{"/trace/v1/n1/ovn", "protocol=icmp&to=192.0.2.1:1&pod=a/b", "protocol"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=192.0.2.1&pod=a/b", "no destination"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=192.0.2.1:0&pod=a/b", "no destination"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=224.0.0.1:80&pod=a/b", "no destination"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=[fe80::1%25eth0]:80&pod=a/b", "no destination"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=192.0.2.0/24:80&pod=a/b", "no destination"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=[::ffff:192.0.2.1]:80&pod=a/b", "no destination"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=192.0.2.1:80&to=192.0.2.2:80&pod=a/b", "given twice"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=192.0.2.1:80&pod=a/b&more=1", "unknown parameter"},
		{"/trace/v1/n1/ovn", `protocol=tcp&to=192.0.2.1:80&pod=a/b"`, "pod"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=192.0.2.1:80&pod=b", "pod"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=192.0.2.1:80&pod=a/b&choice=99", "choice"},
		{"/trace/v1/n1/ovn", "protocol=tcp&to=192.0.2.1:80&pod=a/b&source=10.0.0.1", "pod"},
		{"/trace/v1/n1/kernel", "protocol=tcp&to=192.0.2.1:80", "source"},
		{"/trace/v1/n1/kernel", "protocol=tcp&to=192.0.2.1:80&source=fd00::1", "source"},
		{"/trace/v1/n1/kernel", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&pod=a/b", "belong"},
		{"/trace/v1/n1/kernel", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&from=host", "from"},
		{"/trace/v1/n1/bridge", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&from=afar", "from"},
		{"/trace/v1/n1/bridge", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&mark=x", "mark"},
		{"/trace/v1/n1/bridge", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&port=1", "port"},
		{"/trace/v1/n1/connection", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1", "port"},
		{"/trace/v1/n1/connection", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&port=0", "port"},
		{"/trace/v1/n1/connection", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&port=70000", "port"},
		{"/trace/v1/n1/connection", "protocol=tcp&to=192.0.2.1:80&port=1", "source"},
		{"/trace/v1/n1/connection", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&port=1&mark=1", "mark"},
		{"/trace/v1/n1/probe", "protocol=tcp&to=192.0.2.1:80", "pod"},
		{"/trace/v1/n1/probe", "protocol=tcp&to=192.0.2.1:80&pod=a/b&source=10.0.0.1", "pod"},
		{"/trace/v1/n1/probe", "protocol=tcp&to=192.0.2.1:80&pod=a/b&choice=1", "choice"},
		{"/trace/v1/n1/probe", "protocol=tcp&to=127.0.0.1:80&pod=a/b", "no destination"},
		{"/trace/v1/n1/probe", "protocol=tcp&to=169.254.169.254:80&pod=a/b", "no destination"},
		{"/trace/v1/n1/bridge", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&bridge=third", "bridge"},
		{"/trace/v1/n1/bridge", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&bridge=second&from=host", "bridge"},
		{"/trace/v1/n1/kernel", "protocol=tcp&to=192.0.2.1:80&source=10.0.0.1&bridge=second", "bridge"},
	} {
		v, err := url.ParseQuery(tc.query)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := Decode(tc.path, v); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s?%s: %+v, %v; want %q", tc.path, tc.query, q, err, tc.want)
		}
	}
}

// Accepted questions consist of names and addresses only, and mean the same when encoded again.
func FuzzDecode(f *testing.F) {
	f.Add("/trace/v1/n1/ovn", "protocol=tcp&to=192.0.2.1:80&pod=a/b&choice=2")
	f.Add("/trace/v1/n1/bridge", "protocol=udp&to=[2001:db8::1]:80&source=fd00::1&from=host&mark=1008")
	f.Add("/trace/v1/n1/connection", "protocol=udp&to=192.0.2.1:80&source=10.0.0.1&port=40123")
	f.Add("/trace/v1/n1/probe", "protocol=tcp&to=192.0.2.1:80&pod=a/b")
	f.Add("/trace/v1/n1/bridge", "protocol=udp&to=[2001:db8::1]:80&source=fd00::1&bridge=second&mark=1010")
	f.Fuzz(func(t *testing.T, path, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, err := Decode(path, v)
		if err != nil {
			return
		}
		if strings.ContainsAny(q.Node+q.Pod, "\"'`$;&| \n\\") {
			t.Errorf("accepted %+v", q)
		}
		again, values := q.Path()
		if back, err := Decode(again, values); err != nil || back != q {
			t.Errorf("%+v comes back as %+v, %v", q, back, err)
		}
	})
}
