package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// samples holds, by option, a value that differs from the default, and how the field is
// printed then. Options without effect have no field.
var samples = map[string]struct{ text, want string }{
	"--pidfile":          {"/run/ovnkube.pid", "/run/ovnkube.pid"},
	"--enable-multicast": {"true", ""}, "--unprivileged-mode": {"true", ""}, "--nbctl-daemon-mode": {"true", ""},

	"--cluster-subnets": {"172.30.0.0/16/26", "[172.30.0.0/16/26]"},
	"--mtu":             {"9000", "9000"},
	"--routable-mtu":    {"8900", ""},
	"--conntrack-zone":  {"63000", "63000"},
	"[default] host-masquerade-conntrack-zone": {"63001", ""},
	"[default] ovn-masquerade-conntrack-zone":  {"63002", ""},
	"[default] host-nodeport-conntrack-zone":   {"63003", ""},
	"[default] reassembly-conntrack-zone":      {"63004", ""},
	"--encap-type":                             {"geneve", "geneve"},
	"--encap-ip":                               {"fc00::9", "fc00::9"},
	"--encap-port":                             {"6082", "6082"},
	"--inactivity-probe":                       {"5000", "5s"},
	"--openflow-probe":                         {"60", "1m0s"},
	"--ofctrl-wait-before-clear":               {"2000", "2s"},
	"--monitor-all":                            {"false", "false"},
	"--enable-lflow-cache":                     {"false", "false"},
	"--lflow-cache-limit":                      {"1000", "1000"},
	"--lflow-cache-limit-kb":                   {"100000", "100000"},
	"--enable-udp-aggregation":                 {"false", ""},
	"--zone":                                   {"east", ""},

	"--loglevel":                    {"5", "5"},
	"--logfile":                     {"/var/log/ovnkube.log", "/var/log/ovnkube.log"},
	"--logfile-maxsize":             {"10", "10"},
	"--logfile-maxbackups":          {"2", "2"},
	"--logfile-maxage":              {"0", "0"},
	"--egress-audit-log":            {"/var/log/egress.log", "/var/log/egress.log"},
	"--egress-audit-log-maxsize":    {"10", "10"},
	"--egress-audit-log-maxbackups": {"3", "3"},
	"--libovsdblogfile":             {"/var/log/libovsdb.log", ""},
	"--acl-logging-rate-limit":      {"10", ""},

	"--netflow-targets": {"10.0.0.9:2055", ""}, "--sflow-targets": {"10.0.0.9:6343", ""}, "--ipfix-targets": {"10.0.0.9:4739", ""},
	"--ipfix-sampling": {"100", ""}, "--ipfix-cache-max-flows": {"9", ""}, "--ipfix-cache-active-timeout": {"9", ""},

	"--cni-conf-dir": {"/etc/cni/other", "/etc/cni/other"},
	"--cni-bin-dir":  {"/usr/lib/cni", "/usr/lib/cni"},
	"--cni-plugin":   {"my-cni", "my-cni"},

	"--k8s-kubeconfig":           {"/etc/kubernetes/admin.conf", "/etc/kubernetes/admin.conf"},
	"--k8s-apiserver":            {"https://[fd00::1]:6443", "https://[fd00::1]:6443"},
	"--k8s-cacert":               {"/etc/kubernetes/ca.crt", "/etc/kubernetes/ca.crt"},
	"--k8s-token":                {"abc.def", "abc.def"},
	"--k8s-token-file":           {"/run/token", "/run/token"},
	"--k8s-service-cidrs":        {"10.96.0.0/16", "[10.96.0.0/16]"},
	"--ovn-config-namespace":     {"openshift-ovn-kubernetes", "openshift-ovn-kubernetes"},
	"--ovn-empty-lb-events":      {"true", "true"},
	"--healthz-bind-address":     {"0.0.0.0:10256", "0.0.0.0:10256"},
	"--no-hostsubnet-nodes":      {"kubernetes.io/os=windows", ""},
	"--host-network-namespace":   {"openshift-host-network", ""},
	"--platform-type":            {"BareMetal", ""},
	"--dns-service-namespace":    {"openshift-dns", ""},
	"--dns-service-name":         {"dns-default", ""},
	"--disable-requestedchassis": {"no", ""},
	"--pod-ip":                   {"10.0.0.3", ""},
	"--bootstrap-kubeconfig":     {"/var/lib/kubelet/kubeconfig", ""},
	"--cert-dir":                 {"/etc/ovn/ovnkube-node-certs", ""},
	"--cert-duration":            {"24h", ""},

	"--metrics-bind-address":           {"[::]:9409", "[::]:9409"},
	"--metrics-enable-pprof":           {"true", "true"},
	"--metrics-insecure":               {"true", "true"},
	"--node-server-privkey":            {"/etc/tls.key", "/etc/tls.key"},
	"--node-server-cert":               {"/etc/tls.crt", "/etc/tls.crt"},
	"--ovn-metrics-bind-address":       {"127.0.0.1:9476", ""},
	"--export-ovs-metrics":             {"true", ""},
	"--metrics-enable-config-duration": {"true", ""},
	"--metrics-enable-scale":           {"true", ""},

	"--egress-page-bind-address": {"[::]:9414", "[::]:9414"},
	"--egress-page-privkey":      {"/page.key", "/page.key"},
	"--egress-page-cert":         {"/page.crt", "/page.crt"},

	"--trace-bind-address": {"[::]:9413", "[::]:9413"},

	"--nb-address":             {"tcp:10.0.0.1:6641,tcp:[fd00::2]:6641", "[tcp:10.0.0.1:6641 tcp:[fd00::2]:6641]"},
	"--nb-client-privkey":      {"/nb.key", "/nb.key"},
	"--nb-client-cert":         {"/nb.crt", "/nb.crt"},
	"--nb-client-cacert":       {"/nb.ca", "/nb.ca"},
	"--nb-cert-common-name":    {"ovn", "ovn"},
	"--nb-raft-election-timer": {"2000", ""},
	"--sb-address":             {"ssl://ovn.example:6642", "[ssl:ovn.example:6642]"},
	"--sb-client-privkey":      {"/sb.key", "/sb.key"},
	"--sb-client-cert":         {"/sb.crt", "/sb.crt"},
	"--sb-client-cacert":       {"/sb.ca", "/sb.ca"},
	"--sb-cert-common-name":    {"ovn", "ovn"},
	"--sb-raft-election-timer": {"2000", ""},

	"--gateway-mode":                 {"local", "local"},
	"--gateway-interface":            {"eth1", "eth1"},
	"--gateway-nexthop":              {"172.18.0.1, 172.18.0.2", "[172.18.0.1 172.18.0.2]"},
	"--gateway-vlanid":               {"100", "100"},
	"--nodeport":                     {"on", "true"},
	"--disable-snat-multiple-gws":    {"true", "true"},
	"--gateway-v4-join-subnet":       {"100.65.0.0/16", "100.65.0.0/16"},
	"--gateway-v6-join-subnet":       {"fd90::/64", "fd90::/64"},
	"--gateway-v4-masquerade-subnet": {"169.254.0.0/17", "169.254.0.0/17"},
	"--gateway-v6-masquerade-subnet": {"fd68::/112", "fd68::/112"},
	"--exgw-interface":               {"eth2", "eth2"},
	"--gateway-router-subnet":        {"10.1.0.0/16", ""},
	"--single-node":                  {"true", ""},
	"--disable-pkt-mtu-check":        {"true", ""},
	"--disable-forwarding":           {"true", ""},
	"--allow-no-uplink":              {"true", ""},
	"--init-gateways":                {"true", ""},

	"--ha-election-lease-duration": {"137", "2m17s"},
	"--ha-election-renew-deadline": {"40", "40s"},
	"--ha-election-retry-period":   {"10", "10s"},

	"--enable-egress-ip":                    {"true", "true"},
	"--enable-egress-service":               {"true", "true"},
	"--enable-multi-external-gateway":       {"true", "true"},
	"--external-gateway-namespaces":         {"f5, gateways", "[f5 gateways]"},
	"--node-local-addresses":                {"fd00:ec2::254, 168.63.129.0/24", "[fd00:ec2::254/128 168.63.129.0/24]"},
	"--egressip-reachability-total-timeout": {"0", "0s"},
	"--egressip-acknowledge-timeout":        {"0", "0s"},
	"--egressip-node-healthcheck-port":      {"9107", "9107"},
	"--enable-interconnect":                 {"false", ""},
	"--enable-egress-firewall":              {"true", ""}, "--enable-egress-qos": {"true", ""},
	"--enable-multi-network": {"true", ""}, "--enable-multi-networkpolicy": {"true", ""},
	"--enable-stateless-netpol": {"true", ""}, "--enable-admin-network-policy": {"true", ""},
	"--enable-svc-template-support": {"true", ""}, "--enable-persistent-ips": {"true", ""},
	"--enable-dns-name-resolver": {"true", ""},

	"--enable-hybrid-overlay": {"true", ""}, "--hybrid-overlay-cluster-subnets": {"10.132.0.0/14", ""},
	"--hybrid-overlay-vxlan-port": {"9000", ""},

	"--ovnkube-node-mode": {"full", ""}, "--ovnkube-node-mgmt-port-netdev": {"eth3", ""},
	"--ovnkube-node-mgmt-port-dp-resource-name": {"example.com/vf", ""}, "--disable-ovn-iface-id-ver": {"0", ""},

	"--cluster-manager-v4-transit-switch-subnet": {"100.89.0.0/16", ""},
	"--cluster-manager-v6-transit-switch-subnet": {"fd96::/64", ""},
}

// alongside holds the settings that an option requires.
var alongside = map[string]map[string]string{
	"--node-server-privkey": {"node-server-cert": "/c"},
	"--node-server-cert":    {"node-server-privkey": "/k"},

	"--egress-page-bind-address": {"egress-page-privkey": "/k", "egress-page-cert": "/c"},
	"--egress-page-privkey":      {"egress-page-cert": "/c"},
	"--egress-page-cert":         {"egress-page-privkey": "/k"},

	"--nb-address":        {"nb-cert-common-name": "n"},
	"--nb-client-privkey": {"nb-address": "ssl:h:1", "nb-cert-common-name": "n"},
	"--nb-client-cert":    {"nb-address": "ssl:h:1", "nb-cert-common-name": "n"},
	"--nb-client-cacert":  {"nb-address": "ssl:h:1", "nb-cert-common-name": "n"},
	"--sb-address":        {"sb-cert-common-name": "n"},
	"--sb-client-privkey": {"sb-address": "ssl:h:1", "sb-cert-common-name": "n"},
	"--sb-client-cert":    {"sb-address": "ssl:h:1", "sb-cert-common-name": "n"},
	"--sb-client-cacert":  {"sb-address": "ssl:h:1", "sb-cert-common-name": "n"},
}

func field(o *Option, c Config) string {
	if o.value.field == nil {
		return ""
	}
	return fmt.Sprint(reflect.ValueOf(o.value.field(&c)).Elem().Interface())
}

func mustLoad(t *testing.T, s Sources) (Config, []Notice) {
	t.Helper()
	c, n, err := Load(s)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c, n
}

func ini(section, key, text string) *File {
	return &File{Name: "ovn.conf", Data: fmt.Appendf(nil, "[%s]\n%s=%q\n", section, key, text)}
}

func TestEveryOptionFromEverySource(t *testing.T) {
	names := map[string]bool{}
	for _, o := range Options {
		if names[o.Name()] {
			t.Errorf("%s is in the table twice", o.Name())
		}
		names[o.Name()] = true
		sample, ok := samples[o.Name()]
		if !ok {
			t.Errorf("%s has no sample", o.Name())
			continue
		}
		sources := map[string]Sources{}
		if o.Flag != "" {
			sources["flag"] = Sources{Flags: map[string]string{o.Flag: sample.text}}
		}
		if o.OldFlag != "" {
			sources["old flag"] = Sources{Flags: map[string]string{o.OldFlag: sample.text}}
		}
		if o.OldSwitch != "" {
			sources["switch"] = Sources{Flags: map[string]string{o.OldSwitch: "true"}}
		}
		if o.Key != "" {
			sources["file"] = Sources{File: ini(o.Section, o.Key, sample.text)}
			sources["file in capitals"] = Sources{File: ini(strings.ToUpper(o.Section), strings.ToUpper(o.Key), sample.text)}
		}
		if o.OldKey != "" {
			sources["old key"] = Sources{File: ini(o.OldSection, o.OldKey, sample.text)}
		}
		if o.Env != "" {
			sources["environment"] = Sources{LookupEnv: env(o.Env, sample.text)}
		}
		if o.ExternalID != "" {
			sources["external_ids"] = Sources{ExternalIDs: ids(o.ExternalID, sample.text)}
		}
		for source, s := range sources {
			t.Run(o.Name()+" from "+source, func(t *testing.T) {
				flags := maps.Clone(alongside[o.Name()])
				if flags == nil {
					flags = map[string]string{}
				}
				maps.Copy(flags, s.Flags)
				s.Flags = flags
				c, notices := mustLoad(t, s)
				if got := field(o, c); got != sample.want {
					t.Errorf("field is %q, want %q", got, sample.want)
				}
				if told := len(notices) > 0; told != (o.NoEffect != "") {
					t.Errorf("notices %v, NoEffect %q", notices, o.NoEffect)
				}
			})
		}
	}
	for name := range samples {
		if !names[name] {
			t.Errorf("sample %s is of no option", name)
		}
	}
}

func env(name, text string) func(string) (string, bool) {
	return func(n string) (string, bool) { return text, n == name }
}

func ids(key, text string) func() (map[string]string, error) {
	return func() (map[string]string, error) { return map[string]string{key: text}, nil }
}

// An option either has an effect, or says that it has none, or accepts only one value.
func TestOptionsAreHonest(t *testing.T) {
	fields := map[any]string{}
	var c Config
	for _, o := range Options {
		acts := o.value.field != nil
		if !acts && o.NoEffect == "" && o.Default == "" {
			t.Errorf("%s does nothing and does not say so", o.Name())
		}
		if acts {
			p := o.value.field(&c)
			if fields[p] != "" {
				t.Errorf("%s and %s fill one field", fields[p], o.Name())
			}
			fields[p] = o.Name()
		}
		if o.Usage == "" || strings.HasSuffix(o.Usage, ".") {
			t.Errorf("%s: usage %q", o.Name(), o.Usage)
		}
	}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		if fields[v.Addr().Interface()] != "" {
			return
		}
		if v.Kind() != reflect.Struct {
			t.Errorf("no option fills Config%s", path)
			return
		}
		for i := range v.NumField() {
			walk(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	}
	walk(reflect.ValueOf(&c).Elem(), "")
}

func TestPrecedence(t *testing.T) {
	// The option that every source can set.
	full := Sources{
		Flags:       map[string]string{"k8s-apiserver": "https://flag:1"},
		File:        ini("kubernetes", "apiserver", "https://file:1"),
		LookupEnv:   env("K8S_APISERVER", "https://env:1"),
		ExternalIDs: ids("k8s-api-server", "https://ids:1"),
	}
	for _, want := range []string{"https://flag:1", "https://file:1", "https://env:1", "https://ids:1", ""} {
		c, _ := mustLoad(t, full)
		if got := c.Kubernetes.APIServer; got != want {
			t.Errorf("APIServer = %q, want %q", got, want)
		}
		switch {
		case full.Flags != nil:
			full.Flags = nil
		case full.File != nil:
			full.File = nil
		case full.LookupEnv != nil:
			full.LookupEnv = nil
		default:
			full.ExternalIDs = nil
		}
	}
}

func TestPrecedenceOfDeprecatedNames(t *testing.T) {
	c, _ := mustLoad(t, Sources{Flags: map[string]string{
		"cluster-subnets": "10.1.0.0/16", "cluster-subnet": "10.2.0.0/16",
		"gateway-mode": "shared", "gateway-local": "true",
	}, File: &File{Name: "f", Data: []byte("[kubernetes]\nservice-cidrs=10.3.0.0/16\nservice-cidr=10.4.0.0/16\n[gateway]\nmode=local\n")}})
	if got := fmt.Sprintln(c.Default.ClusterSubnets, c.Kubernetes.ServiceCIDRs, c.Gateway.Mode); got != "[10.1.0.0/16/24] [10.3.0.0/16] shared\n" {
		t.Errorf("got %s", got)
	}
}

// An empty flag is a setting too: it overrides the file.
func TestEmptyFlagOverridesFile(t *testing.T) {
	c, _ := mustLoad(t, Sources{
		Flags: map[string]string{"gateway-interface": ""},
		File:  ini("gateway", "interface", "eth0"),
	})
	if c.Gateway.Interface != "" {
		t.Errorf("Interface = %q", c.Gateway.Interface)
	}
}

func TestExternalIDsAreReadOnlyWhereNeeded(t *testing.T) {
	calls := 0
	flags := map[string]string{"sb-cert-common-name": "n"}
	for _, o := range Options {
		if o.ExternalID != "" {
			flags[o.Flag] = samples[o.Name()].text
		}
	}
	s := Sources{Flags: flags, ExternalIDs: func() (map[string]string, error) { calls++; return nil, errors.New("no socket") }}
	if _, n := mustLoad(t, s); calls != 0 || len(n) != 0 {
		t.Errorf("%d calls, notices %v", calls, n)
	}
	s.Flags = map[string]string{"sb-address": "unix:/sb"}
	if _, n := mustLoad(t, s); calls != 1 || len(n) != 1 || n[0].String() != "external_ids of Open vSwitch: not read: no socket" {
		t.Errorf("%d calls, notices %v", calls, n)
	}
}

// TestUnreadExternalIDs: a node writes its southbound address to the external_ids, so a default must not take the place of one
// that could not be read.
func TestUnreadExternalIDs(t *testing.T) {
	unread := func() (map[string]string, error) { return nil, errors.New("no socket") }
	for name, s := range map[string]Sources{
		"nothing":           {ExternalIDs: unread},
		"northbound only":   {ExternalIDs: unread, Flags: map[string]string{"nb-address": "unix:/nb"}},
		"empty environment": {ExternalIDs: unread, LookupEnv: env("K8S_APISERVER", "")},
		"TLS":               {ExternalIDs: unread, Flags: map[string]string{"sb-client-privkey": "/key", "sb-client-cert": "/cert", "sb-client-cacert": "/ca"}},
	} {
		want := "external_ids of Open vSwitch cannot be read: no socket; --sb-address, which may be there, has no other source"
		if _, _, err := Load(s); !errors.Is(err, ErrExternalIDs) || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	for name, s := range map[string]Sources{
		"flag":          {ExternalIDs: unread, Flags: map[string]string{"sb-address": "unix:/sb"}},
		"default, said": {ExternalIDs: unread, Flags: map[string]string{"sb-address": "unix:/var/run/ovn/ovnsb_db.sock"}},
		"file":          {ExternalIDs: unread, File: ini("ovnsouth", "address", "unix:/sb")},
		"cleanup":       {ExternalIDs: unread, WithoutSouthbound: true},
		"empty":         {ExternalIDs: func() (map[string]string, error) { return nil, nil }},
		"master":        {},
	} {
		if _, _, err := Load(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	c, n := mustLoad(t, Sources{})
	if len(n) != 0 {
		t.Errorf("notices %v", n)
	}
	want := map[string]string{
		"remote": "unix:/var/run/ovn/ovnsb_db.sock", "mtu": "1400", "mode": "shared", "election": "{1m0s 30s 20s}", "timeout": "1s",
		"families": "[IPv4]", "joins": "100.64.0.0/16 fd98::/64", "cni": "{/etc/cni/net.d /opt/cni/bin ovn-k8s-cni-overlay}", "zone": "64000",
	}
	got := map[string]string{
		"remote": c.OVNSouth.Remote(), "mtu": fmt.Sprint(c.Default.MTU), "mode": string(c.Gateway.Mode), "election": fmt.Sprint(c.MasterHA),
		"timeout": c.Features.ReachabilityTotalTimeout.String(), "families": fmt.Sprint(c.Families()),
		"joins": fmt.Sprint(c.Gateway.JoinSubnet(4), " ", c.Gateway.JoinSubnet(6)), "cni": fmt.Sprint(c.CNI), "zone": fmt.Sprint(c.Default.ConntrackZone),
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestOVNControllerIDs(t *testing.T) {
	c, _ := mustLoad(t, Sources{Flags: map[string]string{
		"sb-address": "tcp:10.0.0.1:6642,tcp:[fd00::1]:6642", "openflow-probe": "60", "lflow-cache-limit-kb": "5",
	}})
	want := map[string]string{
		"ovn-remote": "tcp:10.0.0.1:6642,tcp:[fd00::1]:6642", "ovn-encap-type": "geneve", "ovn-monitor-all": "true",
		"ovn-remote-probe-interval": "100000", "ovn-openflow-probe-interval": "60", "ovn-ofctrl-wait-before-clear": "0",
		"ovn-enable-lflow-cache": "true", "ovn-limit-lflow-cache": "", "ovn-memlimit-lflow-cache-kb": "5",
	}
	if got := c.OVNControllerIDs(); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Load keeps no state: two runs do not affect each other.
func TestLoadIsPure(t *testing.T) {
	s := Sources{Flags: map[string]string{"cluster-subnets": "10.1.0.0/16,fd01::/48", "k8s-service-cidrs": "10.96.0.0/16,fd02::/112"}}
	a, _ := mustLoad(t, s)
	mustLoad(t, Sources{Flags: map[string]string{"mtu": "9000"}})
	b, _ := mustLoad(t, s)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
	if !slices.Equal(a.Families(), b.Families()) || len(a.Families()) != 2 {
		t.Errorf("families %v", a.Families())
	}
}

func noFile(path string) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}
