package config

import (
	"fmt"
	"strings"
	"testing"
)

// A file with the variations that occur in practice: quotes, capitals, comments, booleans
// without value, spaces, a key given twice, line endings of another system.
func TestFileForms(t *testing.T) {
	data := strings.ReplaceAll(`
# one cluster
[default]
mtu="1400"
cluster-subnets = "10.244.0.0/16/24, fd00:10:244::/48/64" ; both families
Conntrack-Zone=64000 # zone

[Kubernetes]
service-cidrs=10.96.0.0/16,fd00:10:96::/112
apiserver="https://172.18.0.2:6443"

[gateway]
nodeport
mode=local
mode=shared
next-hop=
`, "\n", "\r\n")
	for _, data := range []string{data, strings.ReplaceAll(data, "\r", ""), "\ufeff" + data, strings.TrimSpace(data)} {
		c, n := mustLoad(t, Sources{File: &File{Name: "f", Data: []byte(data)}})
		got := fmt.Sprintln(c.Default.MTU, c.Default.ClusterSubnets, c.Kubernetes.ServiceCIDRs, c.Kubernetes.APIServer, c.Gateway.NodePort, c.Gateway.Mode, c.Gateway.NextHops, n)
		want := "1400 [10.244.0.0/16/24 fd00:10:244::/48/64] [10.96.0.0/16 fd00:10:96::/112] https://172.18.0.2:6443 true shared [] []\n"
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Whatever the bytes are, Load returns a valid Config or one line that starts
// with the file's name.
func FuzzFile(f *testing.F) {
	f.Add([]byte("[default]\nmtu=1400\n"))
	f.Add([]byte("[gateway]\nnodeport\nmode = \"local\" ; x\nnext-hop=1.2.3.4,::1\n"))
	f.Add([]byte("[default \"sub\"]\ncluster-subnets=10.0.0.0/8/24,fd00::/48\n"))
	f.Add([]byte("[ovnnorth]\naddress=ssl:[::1]:1\\\n,tcp:x:2\nclient-cert=\"a\\tb\"\n"))
	f.Add([]byte("[masterha]\nelection-retry-period=99\n[ipfix]\nsampling=\n#\n;"))
	for _, o := range Options {
		if o.Key != "" {
			f.Add(ini(o.Section, o.Key, samples[o.Name()].text).Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := Sources{File: &File{Name: "ovn.conf", Data: data}}
		c, notices, err := Load(s)
		if err != nil {
			if len(notices) > 0 || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%d notices with error %q", len(notices), err)
			}
			if at := err.Error(); !strings.HasPrefix(at, "ovn.conf:") && !strings.HasPrefix(at, "default of --") {
				t.Fatalf("error %q does not name the file", err)
			}
			return
		}
		if len(c.Default.ClusterSubnets) == 0 || len(c.OVNNorth.Endpoints) == 0 || len(c.Families()) != len(c.Kubernetes.ServiceCIDRs) {
			t.Fatalf("accepted %q as %+v", data, c)
		}
		for _, cs := range c.Default.ClusterSubnets {
			if cs.CIDR != cs.CIDR.Masked() || cs.HostPrefixLen < cs.CIDR.Bits() {
				t.Fatalf("accepted %q as %v", data, cs)
			}
			if again, ok := parseClusterSubnet(cs.String()); !ok || again != cs {
				t.Fatalf("%v does not read back: %v", cs, again)
			}
		}
		for _, e := range append(c.OVNNorth.Endpoints, c.OVNSouth.Endpoints...) {
			if again, ok := parseEndpoint(e.String()); !ok || again != e {
				t.Fatalf("%v does not read back: %v", e, again)
			}
		}
	})
}

// TestCertificateKeys: keys with which another implementation has its nodes request client certificates, and
// the pod's own address, are accepted with a notice. Keys that nobody knows are refused by name.
func TestCertificateKeys(t *testing.T) {
	for key, text := range map[string]string{
		"bootstrap-kubeconfig": "/var/lib/kubelet/kubeconfig", "cert-dir": "/etc/ovn/ovnkube-node-certs", "cert-duration": "24h", "pod-ip": "10.244.0.3",
	} {
		_, notices, err := Load(Sources{File: &File{Name: "f", Data: []byte("[kubernetes]\n" + key + "=" + text + "\n")}})
		if where := "f:kubernetes:" + key; err != nil || len(notices) != 1 || notices[0].Where != where {
			t.Errorf("%s: %v, notices %v", key, err, notices)
		}
		_, _, err = Load(Sources{File: &File{Name: "f", Data: []byte("[kubernetes]\n" + key + "s=" + text + "\n")}})
		if want := "f:kubernetes:" + key + "s: value \"" + text + "\": unknown key; "; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
