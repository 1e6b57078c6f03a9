package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// commandLine parses args as the program does.
func commandLine(t *testing.T, args ...string) map[string]string {
	t.Helper()
	flags, parsed := Flags()
	app := &cli.App{Name: "test", HideHelp: true, Flags: flags, Action: func(c *cli.Context) error {
		if c.Args().Present() {
			return fmt.Errorf("left over: %v", c.Args().Slice())
		}
		return nil
	}}
	if err := app.Run(append([]string{"test"}, args...)); err != nil {
		t.Fatal(err)
	}
	return parsed()
}

// The command line of a node and the file of a cluster, as in existing deployments.
func TestExistingDeployment(t *testing.T) {
	flags := commandLine(t, "--loglevel=4", "-logfile", "/var/log/ovn-kubernetes/ovnkube.log",
		"--nb-address", "ssl:10.0.0.2:9641,ssl:10.0.0.3:9641,ssl:10.0.0.4:9641",
		"--nb-client-privkey", "/ovn-cert/tls.key", "--nb-client-cert", "/ovn-cert/tls.crt", "--nb-client-cacert", "/ovn-ca/ca-bundle.crt", "--nb-cert-common-name", "ovn",
		"--sb-address", "ssl:10.0.0.2:9642,ssl:10.0.0.3:9642,ssl:10.0.0.4:9642",
		"--sb-client-privkey", "/ovn-cert/tls.key", "--sb-client-cert", "/ovn-cert/tls.crt", "--sb-client-cacert", "/ovn-ca/ca-bundle.crt", "--sb-cert-common-name", "ovn",
		"--inactivity-probe=180000", "--gateway-mode", "shared", "--gateway-interface", "br-ex", "--gateway-nexthop=",
		"--metrics-bind-address", "127.0.0.1:29103", "--ovn-metrics-bind-address", "127.0.0.1:29105", "--metrics-enable-pprof", "--export-ovs-metrics",
		"--disable-snat-multiple-gws", "--ovn-empty-lb-events", "--enable-multicast", "--acl-logging-rate-limit", "20", "--nodeport")
	file := &File{Name: "ovnkube.conf", Data: []byte(`
[default]
mtu="8901"
cluster-subnets="10.128.0.0/14/23,fd01::/48/64"
encap-port="6081"
enable-lflow-cache=true
lflow-cache-limit-kb=1048576
enable-udp-aggregation=true

[kubernetes]
service-cidrs="172.30.0.0/16,fd02::/112"
ovn-config-namespace="openshift-ovn-kubernetes"
apiserver="https://api.example:6443"
host-network-namespace="openshift-host-network"
platform-type="BareMetal"
healthz-bind-address="0.0.0.0:10256"
dns-service-namespace="openshift-dns"
dns-service-name="dns-default"

[ovnkubernetesfeature]
enable-egress-ip=true
enable-egress-firewall=true
enable-egress-qos=true
enable-egress-service=true
egressip-node-healthcheck-port=9107

[gateway]
mode=local
nodeport=true

[masterha]
election-lease-duration=137
election-renew-deadline=107
election-retry-period=26
`)}
	c, notices := mustLoad(t, Sources{Flags: flags, File: file})
	got := fmt.Sprintln(c.Default.MTU, c.Default.ClusterSubnets, c.Default.InactivityProbe, c.Default.LFlowCacheLimitKB) +
		fmt.Sprintln(c.Kubernetes.ServiceCIDRs, c.Kubernetes.ConfigNamespace, c.Kubernetes.APIServer, c.Kubernetes.HealthzBindAddress) +
		fmt.Sprintln(c.OVNNorth.URLs(), c.OVNNorth.CommonName, c.OVNNorth.Secure(), c.OVNSouth.Remote()) +
		fmt.Sprintln(c.Gateway.Mode, c.Gateway.Interface, c.Gateway.NextHops, c.Gateway.NodePort, c.Gateway.DisableSNATMultipleGWs) +
		fmt.Sprintln(c.MasterHA, c.Metrics, c.Features.EgressService, c.Logging.File)
	want := `8901 [10.128.0.0/14/23 fd01::/48/64] 3m0s 1048576
[172.30.0.0/16 fd02::/112] openshift-ovn-kubernetes https://api.example:6443 0.0.0.0:10256
[ssl:10.0.0.2:9641 ssl:10.0.0.3:9641 ssl:10.0.0.4:9641] ovn true ssl:10.0.0.2:9642,ssl:10.0.0.3:9642,ssl:10.0.0.4:9642
shared br-ex [] true true
{2m17s 1m47s 26s} {127.0.0.1:29103 true false  } true /var/log/ovn-kubernetes/ovnkube.log
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var told []string
	for _, n := range notices {
		told = append(told, n.Where)
	}
	const section = "ovnkube.conf:ovnkubernetesfeature:"
	if want := []string{
		"--enable-multicast", "--ovn-empty-lb-events", "ovnkube.conf:kubernetes:host-network-namespace", "ovnkube.conf:kubernetes:platform-type",
		"ovnkube.conf:kubernetes:dns-service-namespace", "ovnkube.conf:kubernetes:dns-service-name",
		"--ovn-metrics-bind-address", "--export-ovs-metrics", "--gateway-mode",
		section + "enable-egress-firewall", section + "enable-egress-qos",
	}; !slices.Equal(told, want) {
		t.Errorf("notices about\n%s, want\n%s", strings.Join(told, " "), strings.Join(want, " "))
	}
}

func TestBooleanFlagForms(t *testing.T) {
	for args, want := range map[string]bool{
		"--nodeport": true, "--nodeport=true": true, "-nodeport": true, "--nodeport=false": false, "--nodeport --nodeport=no": false,
	} {
		c, _ := mustLoad(t, Sources{Flags: commandLine(t, strings.Fields(args)...)})
		if c.Gateway.NodePort != want {
			t.Errorf("%s: %v", args, c.Gateway.NodePort)
		}
	}
}

// If a flag is given twice, the second value counts.
func TestRepeatedFlag(t *testing.T) {
	c, _ := mustLoad(t, Sources{Flags: commandLine(t, "--mtu", "1400", "--mtu", "1500")})
	if c.Default.MTU != 1500 {
		t.Errorf("MTU = %d", c.Default.MTU)
	}
}

// Everything that --help lists has an explanation.
func TestHelp(t *testing.T) {
	flags, _ := Flags()
	for _, f := range flags {
		if d, ok := f.(cli.DocGenerationFlag); !ok || d.GetUsage() == "" || f.String() == "" {
			t.Errorf("%v: no usage", f.Names())
		}
	}
}
