package config

import (
	"maps"
	"strings"
	"testing"
)

const dual = "10.244.0.0/16/24,fd00:10:244::/48/64"

func TestErrors(t *testing.T) {
	const ordinary = "; no loopback, multicast or unspecified addresses"
	const subnets = "CIDR[/length of a node's subnet] separated by commas, e.g. 10.244.0.0/16/24,fd00:10:244::/48/64; " +
		"the length is from the CIDR's own to 29 (default 24) for IPv4, always 64 for IPv6" + ordinary
	const members = "tcp:HOST:PORT, ssl:HOST:PORT or unix:PATH, several of one scheme separated by commas, IPv6 in brackets"
	type flags = map[string]string
	for _, tc := range []struct {
		name  string
		flags flags
		file  string
		env   [2]string
		ids   [2]string
		want  string
	}{
		{"number", flags{"mtu": "abc"}, "", [2]string{}, [2]string{}, `--mtu: value "abc": allowed: a number of bytes from 576 to 65535`},
		{"number out of range", flags{"gateway-vlanid": "4095"}, "", [2]string{}, [2]string{}, `--gateway-vlanid: value "4095": allowed: a VLAN from 0 to 4094`},
		{"number in the file", nil, "[default]\nmtu=9k\n", [2]string{}, [2]string{}, `ovn.conf:default:mtu: value "9k": allowed: a number of bytes from 576 to 65535`},
		{"number without value", nil, "[default]\nmtu\n", [2]string{}, [2]string{}, `ovn.conf:default:mtu: value "": allowed: a number of bytes from 576 to 65535`},
		{"boolean", flags{"nodeport": "maybe"}, "", [2]string{}, [2]string{}, `--nodeport: value "maybe": allowed: true or false`},
		{"mode", flags{"gateway-mode": ""}, "", [2]string{}, [2]string{}, `--gateway-mode: value "": allowed: local or shared`},
		{"mode by switch", flags{"gateway-local": "x"}, "", [2]string{}, [2]string{}, `--gateway-local: value "x": allowed: local or shared`},
		{"encapsulation", flags{"encap-type": "vxlan"}, "", [2]string{}, [2]string{}, `--encap-type: value "vxlan": allowed: geneve`},
		{"encapsulation address", flags{"encap-ip": "0.0.0.0"}, "", [2]string{}, [2]string{}, `--encap-ip: value "0.0.0.0": allowed: an IPv4 or IPv6 address` + ordinary},
		{"loopback encapsulation address", flags{"encap-ip": "127.0.0.1"}, "", [2]string{}, [2]string{}, `--encap-ip: value "127.0.0.1": allowed: an IPv4 or IPv6 address` + ordinary},
		{"loopback next hop", flags{"gateway-nexthop": "172.18.0.1,::ffff:127.0.0.2"}, "", [2]string{}, [2]string{}, `--gateway-nexthop: value "172.18.0.1,::ffff:127.0.0.2": allowed: IPv4 or IPv6 addresses separated by commas` + ordinary},
		{"loopback subnets", flags{"cluster-subnets": "127.0.0.0/8"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "127.0.0.0/8": allowed: ` + subnets},
		{"part of the loopback", flags{"cluster-subnets": "127.128.0.0/16"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "127.128.0.0/16": allowed: ` + subnets},
		{"multicast subnets", flags{"cluster-subnets": "224.0.0.0/4"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "224.0.0.0/4": allowed: ` + subnets},
		{"subnets with the loopback", flags{"cluster-subnets": "::/48"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "::/48": allowed: ` + subnets},
		{"everything", flags{"k8s-service-cidrs": "0.0.0.0/0"}, "", [2]string{}, [2]string{}, `--k8s-service-cidrs: value "0.0.0.0/0": allowed: ranges in CIDR form separated by commas, e.g. 10.96.0.0/16,fd00:10:96::/112` + ordinary},
		{"multicast services", flags{"k8s-service-cidrs": "ff08::/112"}, "", [2]string{}, [2]string{}, `--k8s-service-cidrs: value "ff08::/112": allowed: ranges in CIDR form separated by commas, e.g. 10.96.0.0/16,fd00:10:96::/112` + ordinary},
		{"loopback join", flags{"gateway-v6-join-subnet": "::/64"}, "", [2]string{}, [2]string{}, `--gateway-v6-join-subnet: value "::/64": allowed: an IPv6 range in CIDR form, /126 or larger` + ordinary},
		{"subnets", flags{"cluster-subnets": "10.0.0.0/33"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "10.0.0.0/33": allowed: ` + subnets},
		{"host length too short", flags{"cluster-subnets": "10.0.0.0/16/15"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "10.0.0.0/16/15": allowed: ` + subnets},
		{"host length too long", flags{"cluster-subnets": "10.0.0.0/16/30"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "10.0.0.0/16/30": allowed: ` + subnets},
		{"host length missing", flags{"cluster-subnets": "10.0.0.0/16/"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "10.0.0.0/16/": allowed: ` + subnets},
		{"IPv6 host length", flags{"cluster-subnets": "fd00::/48/72"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "fd00::/48/72": allowed: ` + subnets},
		{"range smaller than a node", flags{"cluster-subnets": "10.0.0.0/26"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "10.0.0.0/26": allowed: ` + subnets},
		{"empty item", flags{"cluster-subnets": "10.0.0.0/16,"}, "", [2]string{}, [2]string{}, `--cluster-subnets: value "10.0.0.0/16,": allowed: ` + subnets},
		{"join family", flags{"gateway-v4-join-subnet": "fd98::/64"}, "", [2]string{}, [2]string{}, `--gateway-v4-join-subnet: value "fd98::/64": allowed: an IPv4 range in CIDR form, /30 or larger` + ordinary},
		{"masquerade size", flags{"gateway-v6-masquerade-subnet": "fd69::/126"}, "", [2]string{}, [2]string{}, `--gateway-v6-masquerade-subnet: value "fd69::/126": allowed: an IPv6 range in CIDR form, /125 or larger` + ordinary},
		{"next hop", flags{"gateway-nexthop": "172.18.0.1 172.18.0.2"}, "", [2]string{}, [2]string{}, `--gateway-nexthop: value "172.18.0.1 172.18.0.2": allowed: IPv4 or IPv6 addresses separated by commas` + ordinary},
		{"scheme", flags{"nb-address": "udp:1.2.3.4:6641"}, "", [2]string{}, [2]string{}, `--nb-address: value "udp:1.2.3.4:6641": allowed: ` + members},
		{"brackets", flags{"nb-address": "tcp:fd00::1:6641"}, "", [2]string{}, [2]string{}, `--nb-address: value "tcp:fd00::1:6641": allowed: ` + members},
		{"schemes mixed", flags{"sb-address": "tcp:1.2.3.4:6642,ssl:1.2.3.5:6642"}, "", [2]string{}, [2]string{}, `--sb-address: value "tcp:1.2.3.4:6642,ssl:1.2.3.5:6642": allowed: ` + members},
		{"external_ids", nil, "", [2]string{}, [2]string{"ovn-remote", "10.0.0.1"}, `external_ids:ovn-remote: value "10.0.0.1": allowed: ` + members},
		{"environment", nil, "", [2]string{"K8S_APISERVER", "10.0.0.1:6443"}, [2]string{}, `environment variable K8S_APISERVER: value "10.0.0.1:6443": allowed: a URL, http://host:port or https://host:port`},
		{"listener", flags{"metrics-bind-address": "9409"}, "", [2]string{}, [2]string{}, `--metrics-bind-address: value "9409": allowed: an IP address and a port, e.g. 0.0.0.0:9409 or [::]:9409`},
		{"path", flags{"pidfile": "x.pid"}, "", [2]string{}, [2]string{}, `--pidfile: value "x.pid": allowed: an absolute path to a file`},
		{"namespace", flags{"ovn-config-namespace": "Ovn_K"}, "", [2]string{}, [2]string{}, `--ovn-config-namespace: value "Ovn_K": allowed: a namespace: lower case letters, digits and dashes, at most 63, no dash at either end`},
		{"interface", flags{"gateway-interface": "a-name-of-16-chr"}, "", [2]string{}, [2]string{}, `--gateway-interface: value "a-name-of-16-chr": allowed: the name of a network interface, at most 15 characters`},
		{"executable", flags{"cni-plugin": "/bin/x"}, "", [2]string{}, [2]string{}, `--cni-plugin: value "/bin/x": allowed: the name of an executable, without a directory`},
		{"what we are not", flags{"enable-interconnect": "true"}, "", [2]string{}, [2]string{}, `--enable-interconnect: value "true": allowed: false (all nodes share one zone)`},
		{"bad value without effect", flags{"enable-egress-qos": "si"}, "", [2]string{}, [2]string{}, `--enable-egress-qos: value "si": allowed: true or false`},

		{"unknown key", nil, "[gateway]\nmode=local\nmood=good\n", [2]string{}, [2]string{}, `ovn.conf:gateway:mood: value "good": unknown key; allowed: mode, interface, next-hop, vlan-id, nodeport, ` +
			`disable-snat-multiple-gws, v4-join-subnet, v6-join-subnet, v4-masquerade-subnet, v6-masquerade-subnet, egw-interface, router-subnet, single-node, disable-pkt-mtu-check, disable-forwarding, allow-no-uplink`},
		{"unknown section", nil, "[gateways]\nmode=local\n", [2]string{}, [2]string{}, `ovn.conf:gateways: value "": unknown section; allowed: default, logging, monitoring, ipfix, cni, kubernetes, metrics, page, trace, ` +
			`ovnnorth, ovnsouth, gateway, masterha, ovnkubernetesfeature, hybridoverlay, ovnkubenode, clustermanager`},
		{"unknown subsection", nil, "[gateway \"x\"]\n", [2]string{}, [2]string{}, `ovn.conf:gateway: value "x": unknown section; allowed: default, logging, monitoring, ipfix, cni, kubernetes, metrics, page, trace, ` +
			`ovnnorth, ovnsouth, gateway, masterha, ovnkubernetesfeature, hybridoverlay, ovnkubenode, clustermanager`},
		{"no section", nil, "mtu=1400\n", [2]string{}, [2]string{}, `ovn.conf:1:1: expected section header; allowed: [section] and key=value lines`},
		{"bad quotes", nil, "[default]\nmtu=\"1400\n", [2]string{}, [2]string{}, `ovn.conf:2:5: string not terminated; allowed: [section] and key=value lines`},
		{"not text", nil, "\xff\xfe\x00", [2]string{}, [2]string{}, `ovn.conf: not a text file in UTF-8; allowed: [section] and key=value lines`},

		{"families", flags{"cluster-subnets": dual, "k8s-service-cidrs": "10.96.0.0/16"}, "", [2]string{}, [2]string{},
			`--k8s-service-cidrs: value "10.96.0.0/16": IPv4; allowed: one range for each of IPv4 and IPv6, the families of --cluster-subnets "` + dual + `"`},
		{"families by default", flags{"cluster-subnets": "fd00:10:244::/48/64"}, "", [2]string{}, [2]string{},
			`default of --k8s-service-cidrs: value "172.16.1.0/24": IPv4; allowed: one range for each of IPv6, the families of --cluster-subnets "fd00:10:244::/48/64"`},
		{"two service ranges", flags{"k8s-service-cidrs": "10.96.0.0/16,10.97.0.0/16"}, "", [2]string{}, [2]string{},
			`--k8s-service-cidrs: value "10.96.0.0/16,10.97.0.0/16": 2 ranges; allowed: one range for each of IPv4, the families of default of --cluster-subnets "10.128.0.0/14/23"`},
		{"pods overlap services", flags{"cluster-subnets": "10.0.0.0/8"}, "[kubernetes]\nservice-cidrs=10.96.0.0/16\n", [2]string{}, [2]string{},
			`ovn.conf:kubernetes:service-cidrs: value "10.96.0.0/16": 10.96.0.0/16 overlaps 10.0.0.0/8 of --cluster-subnets "10.0.0.0/8"; allowed: ranges that share no address`},
		{"pods overlap pods", flags{"cluster-subnets": "10.0.0.0/16,10.0.128.0/17"}, "", [2]string{}, [2]string{},
			`--cluster-subnets: value "10.0.0.0/16,10.0.128.0/17": 10.0.128.0/17 overlaps 10.0.0.0/16 of --cluster-subnets "10.0.0.0/16,10.0.128.0/17"; allowed: ranges that share no address`},
		{"pods overlap join", flags{"cluster-subnets": "100.64.0.0/10"}, "", [2]string{}, [2]string{},
			`default of --gateway-v4-join-subnet: value "100.64.0.0/16": 100.64.0.0/16 overlaps 100.64.0.0/10 of --cluster-subnets "100.64.0.0/10"; allowed: ranges that share no address`},
		{"join overlaps masquerade", flags{"gateway-v6-masquerade-subnet": "fd98::/125"}, "", [2]string{}, [2]string{},
			`--gateway-v6-masquerade-subnet: value "fd98::/125": fd98::/125 overlaps fd98::/64 of default of --gateway-v6-join-subnet "fd98::/64"; allowed: ranges that share no address`},
		{"MTU", flags{"cluster-subnets": dual, "k8s-service-cidrs": "10.96.0.0/16,fd00:10:96::/112", "mtu": "1200"}, "", [2]string{}, [2]string{},
			`--mtu: value "1200": too small for IPv6; allowed: at least 1280 in a cluster with IPv6`},
		{"next hop family", flags{"gateway-nexthop": "172.18.0.1,fc00::1"}, "", [2]string{}, [2]string{},
			`--gateway-nexthop: value "172.18.0.1,fc00::1": fc00::1 is IPv6; allowed: addresses of the cluster's families, IPv4`},
		{"two uplinks on one interface", flags{"gateway-interface": "eth1", "exgw-interface": "eth1"}, "", [2]string{}, [2]string{},
			`--exgw-interface: value "eth1": the same as --gateway-interface; allowed: an interface other than the gateway's`},
		{"second uplink name", flags{"exgw-interface": "a-name-of-16-chr"}, "", [2]string{}, [2]string{},
			`--exgw-interface: value "a-name-of-16-chr": allowed: the name of a network interface, at most 15 characters`},
		{"renew deadline", nil, "[masterha]\nelection-lease-duration=30\n", [2]string{}, [2]string{},
			`default of --ha-election-renew-deadline: value "30": not shorter than the lease; allowed: less than the lease duration, 30`},
		{"retry period", flags{"ha-election-retry-period": "25"}, "", [2]string{}, [2]string{},
			`--ha-election-retry-period: value "25": too long for the renew deadline; allowed: less than the renew deadline, 30, divided by 1.2`},
		{"ssl without key", flags{"nb-address": "ssl:10.0.0.1:6641"}, "", [2]string{}, [2]string{},
			`default of --nb-client-privkey: value "/etc/openvswitch/ovnnb-privkey.pem": cannot be read: file does not exist; allowed: a readable PEM file: --nb-address uses ssl`},
		{"key without ssl", flags{"sb-client-cert": "/c.pem"}, "", [2]string{}, [2]string{},
			`--sb-client-cert: value "/c.pem": not used by default of --sb-address "unix:/var/run/ovn/ovnsb_db.sock"; allowed: keys and certificates with ssl: addresses only`},
		{"certificate without key", flags{"node-server-cert": "/c.pem"}, "", [2]string{}, [2]string{},
			`--node-server-cert: value "/c.pem": no private key; allowed: both --node-server-privkey and --node-server-cert, or neither`},
		{"page without TLS", flags{"egress-page-bind-address": "0.0.0.0:9414"}, "", [2]string{}, [2]string{},
			`--egress-page-bind-address: value "0.0.0.0:9414": no loopback address, and there is no TLS; allowed: a loopback address, or any with --egress-page-privkey and --egress-page-cert`},
		{"page without TLS, in brackets", flags{"egress-page-bind-address": "[192.0.2.1]:9414"}, "", [2]string{}, [2]string{},
			`--egress-page-bind-address: value "[192.0.2.1]:9414": no loopback address, and there is no TLS; allowed: a loopback address, or any with --egress-page-privkey and --egress-page-cert`},
		{"page without TLS everywhere", flags{"egress-page-bind-address": ":9414"}, "", [2]string{}, [2]string{},
			`--egress-page-bind-address: value ":9414": no loopback address, and there is no TLS; allowed: a loopback address, or any with --egress-page-privkey and --egress-page-cert`},
		{"page with a key only", flags{"egress-page-bind-address": "127.0.0.1:9414", "egress-page-privkey": "/k.pem"}, "", [2]string{}, [2]string{},
			`--egress-page-privkey: value "/k.pem": no certificate; allowed: both --egress-page-privkey and --egress-page-cert, or neither`},
		{"kubeconfig", nil, "", [2]string{"KUBECONFIG", "/none"}, [2]string{},
			`environment variable KUBECONFIG: value "/none": cannot be read: file does not exist; allowed: a readable kubeconfig file`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Sources{Flags: tc.flags, ReadFile: noFile, LookupEnv: env(tc.env[0], tc.env[1]), ExternalIDs: ids(tc.ids[0], tc.ids[1])}
			if tc.file != "" {
				s.File = &File{Name: "ovn.conf", Data: []byte(tc.file)}
			}
			_, _, err := Load(s)
			if err == nil {
				t.Fatalf("accepted; want %s", tc.want)
			}
			if err.Error() != tc.want {
				t.Errorf("\n got %s\nwant %s", err, tc.want)
			}
		})
	}
}

func TestNotices(t *testing.T) {
	_, notices := mustLoad(t, Sources{
		Flags: map[string]string{"enable-egress-firewall": "true", "enable-egress-qos": "false", "acl-logging-rate-limit": "20"},
		File:  &File{Name: "ovn.conf", Data: []byte("[kubernetes]\nplatform-type=None\n")},
	})
	var got []string
	for _, n := range notices {
		got = append(got, n.String())
	}
	want := "ovn.conf:kubernetes:platform-type: value \"None\" accepted, has no effect: no platform is treated differently\n" +
		"--enable-egress-firewall: value \"true\" accepted, has no effect: EgressFirewall objects are not enforced"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// TestOverriddenFile: a setting of the file that a flag replaces by a different one is not dropped silently.
func TestOverriddenFile(t *testing.T) {
	for name, c := range map[string]struct {
		flags map[string]string
		file  string
		want  string
	}{
		"different":     {map[string]string{"gateway-mode": "shared"}, "[gateway]\nmode=local\n", `--gateway-mode: value "shared" replaces "local" of ovn.conf:gateway:mode`},
		"by a switch":   {map[string]string{"gateway-local": "true"}, "[gateway]\nmode=shared\n", `--gateway-local: value "local" replaces "shared" of ovn.conf:gateway:mode`},
		"empty":         {map[string]string{"gateway-interface": ""}, "[gateway]\ninterface=eth0\n", `--gateway-interface: value "" replaces "eth0" of ovn.conf:gateway:interface`},
		"secret":        {map[string]string{"k8s-token": "abc"}, "[kubernetes]\ntoken=def\n", `--k8s-token: replaces a different value of ovn.conf:kubernetes:token`},
		"equal":         {map[string]string{"gateway-mode": "local"}, "[gateway]\nmode=local\n", ""},
		"equal boolean": {map[string]string{"nodeport": "true"}, "[gateway]\nnodeport=yes\n", ""},
		"flag only":     {map[string]string{"gateway-mode": "local"}, "", ""},
		"no effect":     {map[string]string{"platform-type": ""}, "[kubernetes]\nplatform-type=None\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, notices := mustLoad(t, Sources{Flags: c.flags, File: &File{Name: "ovn.conf", Data: []byte(c.file)}})
			switch {
			case c.want == "" && len(notices) > 0:
				t.Errorf("notices %v", notices)
			case c.want != "" && (len(notices) != 1 || notices[0].String() != c.want || !notices[0].Override):
				t.Errorf("notices %+v, want %s", notices, c.want)
			}
		})
	}
}

// TestUncheckedNames: ovnkube says when it does not check the name in the certificate of a database that it uses.
func TestUncheckedNames(t *testing.T) {
	ssl := map[string]string{"nb-address": "ssl:192.0.2.1:6641", "sb-address": "ssl:192.0.2.1:6642"}
	for name, c := range map[string]struct {
		flags map[string]string
		s     Sources
		want  []string
	}{
		"both":        {nil, Sources{}, []string{"--nb-cert-common-name", "--sb-cert-common-name"}},
		"northbound":  {map[string]string{"sb-cert-common-name": "sb"}, Sources{}, []string{"--nb-cert-common-name"}},
		"neither":     {map[string]string{"sb-cert-common-name": "sb", "nb-cert-common-name": "nb"}, Sources{}, nil},
		"without TLS": {map[string]string{"nb-address": "tcp:192.0.2.1:6641", "sb-address": "tcp:192.0.2.1:6642"}, Sources{}, nil},
		"a node":      {nil, Sources{WithoutNorthbound: true}, []string{"--sb-cert-common-name"}},
		"a cleanup":   {nil, Sources{WithoutNorthbound: true, WithoutSouthbound: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.Flags = maps.Clone(ssl)
			maps.Copy(c.s.Flags, c.flags)
			_, notices := mustLoad(t, c.s)
			var got []string
			for _, n := range notices {
				got = append(got, n.String())
			}
			if len(got) != len(c.want) {
				t.Fatalf("notices %q", got)
			}
			for i, option := range c.want {
				if !strings.Contains(got[i], option+" is not set") {
					t.Errorf("notice %q, want one about %s", got[i], option)
				}
			}
		})
	}
}

// TestNodeWithoutNorthboundFiles: a node does not use the northbound database and needs no
// certificate for it, but it does for the southbound one.
func TestNodeWithoutNorthboundFiles(t *testing.T) {
	s := Sources{
		Flags:             map[string]string{"nb-address": "ssl:192.0.2.1:6641", "sb-address": "ssl:192.0.2.1:6642"},
		ReadFile:          noFile,
		WithoutNorthbound: true,
	}
	if _, _, err := Load(s); err == nil || !strings.Contains(err.Error(), "--sb-client-privkey") {
		t.Errorf("%v, want --sb-client-privkey to be refused", err)
	}
	s.WithoutSouthbound = true // as for the cleanup of a node
	if _, _, err := Load(s); err != nil {
		t.Error(err)
	}
}

// TestFilesBesideKubeconfig: the external_ids of a former installation may name files that are gone, and a kubeconfig makes them unused.
func TestFilesBesideKubeconfig(t *testing.T) {
	s := Sources{
		Flags: map[string]string{"k8s-kubeconfig": "/kubeconfig"},
		ExternalIDs: func() (map[string]string, error) {
			return map[string]string{"k8s-ca-certificate": "/none/ca", "k8s-api-token-file": "/none/token"}, nil
		},
		ReadFile: func(path string) ([]byte, error) {
			if path == "/kubeconfig" {
				return nil, nil
			}
			return noFile(path)
		},
	}
	if _, _, err := Load(s); err != nil {
		t.Error(err)
	}
	s.Flags = map[string]string{"k8s-apiserver": "https://192.0.2.1:6443"}
	if _, _, err := Load(s); err == nil || !strings.HasPrefix(err.Error(), "external_ids:k8s-ca-certificate: ") {
		t.Errorf("without a kubeconfig: %v", err)
	}
}

// TestFilesOfOtherRoles: a process does not need the files of settings that only another role uses.
func TestFilesOfOtherRoles(t *testing.T) {
	for name, c := range map[string]struct {
		flags map[string]string
		s     Sources
		want  string // of the error; "" for none
	}{
		"page of a master":       {map[string]string{"egress-page-privkey": "/k", "egress-page-cert": "/c"}, Sources{}, "--egress-page-privkey"},
		"page of masters":        {map[string]string{"egress-page-privkey": "/k", "egress-page-cert": "/c"}, Sources{WithoutPage: true}, ""},
		"page without its key":   {map[string]string{"egress-page-cert": "/c"}, Sources{WithoutPage: true}, "--egress-page-cert"},
		"API server":             {map[string]string{"k8s-cacert": "/ca", "k8s-token-file": "/token"}, Sources{}, "--k8s-cacert"},
		"API server is not used": {map[string]string{"k8s-cacert": "/ca", "k8s-token-file": "/token"}, Sources{WithoutKubernetes: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.Flags, c.s.ReadFile = c.flags, noFile
			_, _, err := Load(c.s)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want+": ")):
				t.Errorf("%v, want %s to be refused", err, c.want)
			}
		})
	}
}
