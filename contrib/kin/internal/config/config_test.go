package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestDefaults(t *testing.T) {
	c, err := Cluster{}.Default()
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.Name, c.Nodes, c.NodePrefix, c.GatewayMode, c.IPFamily, c.NodeSubnets(), c.PodSubnets(), c.ServiceSubnets())
	want := "kin 3 ovn shared dual [172.18.0.0/16 fc00:f853:ccd:e793::/64] [10.244.0.0/16/24 fd00:10:244::/48/64] [10.96.0.0/16 fd00:10:96::/112]"
	if squeeze(got) != squeeze(want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func squeeze(s string) string { return strings.ReplaceAll(s, " ", "") }

func TestSingleFamilyLeavesTheOtherOut(t *testing.T) {
	for family, want := range map[string]string{
		FamilyIPv4: "[172.18.0.0/16] [10.244.0.0/16/24] [10.96.0.0/16]",
		FamilyIPv6: "[fc00:f853:ccd:e793::/64] [fd00:10:244::/48/64] [fd00:10:96::/112]",
	} {
		c, err := Cluster{IPFamily: family}.Default()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.NodeSubnets(), " ", c.PodSubnets(), " ", c.ServiceSubnets()); got != want {
			t.Errorf("%s: got %s, want %s", family, got, want)
		}
	}
}

func TestParseFullFile(t *testing.T) {
	c, err := Parse([]byte(`
name: test
nodes: 5
nodePrefix: edge
gatewayMode: local
ipFamily: ipv4
apiServerPort: 16443
subnets:
  nodes: [192.168.5.0/24]
  pods: [10.0.0.0/14/23]
  services: [10.96.0.0/16]
ovnkube:
  args: [--loglevel=5]
  masterArgs: [--metrics-interval=5]
  nodeArgs: [--mtu=1300]
apiServer: {extraArgs: [--v=4]}
networks:
- {name: blue, subnets: [192.168.50.0/24, "fd00:50::/64"]}
kubelet:
  extraArgs: [--v=3]
  config: {maxPods: 20}
`))
	if err != nil {
		t.Fatal(err)
	}
	if c, err = c.Default(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.PodRanges(), c.NodePrefix, c.Ovnkube.NodeArgs, c.Kubelet.Config["maxPods"], c.NetworkSubnets(c.Networks[0])); got != "[10.0.0.0/14]edge[--mtu=1300] 20 [192.168.50.0/24]" {
		t.Errorf("got %s", got)
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"node: 3":                         `unknown field "node"`,
		"ovnkube: {extraArgs: []}":        `unknown field "ovnkube.extraArgs"`,
		"nodes: three":                    "nodes",
		"nodes: 65":                       "nodes: 65 is not between 1 and 64",
		"nodes: -1":                       "nodes: -1",
		"name: Under_score":               `name: "Under_score"`,
		"gatewayMode: bridged":            `gatewayMode: "bridged" is neither shared nor local`,
		"ipFamily: ipv5":                  `ipFamily: "ipv5" is none of dual, ipv4, ipv6`,
		"datapath: system":                `datapath: "system" is none of auto, kernel, userspace`,
		"cpuWeight: 10001":                "cpuWeight: 10001 is not between 1 and 10000",
		"cpuWeight: -1":                   "cpuWeight: -1",
		"apiServerPort: 70000":            "apiServerPort: 70000",
		"subnets: {nodes: [10.0.0.0/8]}":  "subnets.nodes: wants one IPv6 range, has 0",
		"subnets: {pods: [10.1.0.0]}":     `subnets.pods: "10.1.0.0"`,
		"subnets: {services: [10.0.0/8]}": "10.0.0/8",
		"{ipFamily: ipv4, subnets: {nodes: [172.18.0.9/16]}}":                                                "did you mean 172.18.0.0/16",
		"{ipFamily: ipv4, subnets: {pods: [172.18.0.0/17]}}":                                                 "172.18.0.0/17 overlap",
		"networks: [{name: A, subnets: [10.5.0.0/16]}]":                                                      `networks: "A" is not a name`,
		"networks: [{name: a}]":                                                                              "network a: no range is of",
		"networks: [{name: a, subnets: [172.18.9.0/24]}]":                                                    "172.18.9.0/24 overlap",
		"networks: [{name: a, subnets: [10.5.0.1/16]}]":                                                      "did you mean 10.5.0.0/16",
		"{networks: [{name: a, subnets: [10.5.0.0/24]}, {name: a, subnets: [10.6.0.0/24]}]}":                 "two of the name a",
		"{networks: [{name: a, subnets: [10.5.0.0/24, 10.6.0.0/24, \"fd05::/64\"]}]}":                        "wants one IPv4 range, has 2",
		"{ipFamily: ipv4, networks: [{name: a, subnets: [\"fd05::/64\"]}]}":                                  "no range is of the cluster's families (ipv4)",
		"{ipFamily: ipv4, networks: [{name: a, subnets: [10.5.0.0/24]}, {name: b, subnets: [10.5.0.0/16]}]}": "10.5.0.0/16 overlap",
	} {
		c, err := Parse([]byte(text))
		if err == nil {
			_, err = c.Default()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", text, err, want)
		}
	}
}

func TestParseNetwork(t *testing.T) {
	n, err := ParseNetwork("blue=192.168.50.0/24,fd00:50::/64")
	if got := fmt.Sprint(n, err); got != "{blue [192.168.50.0/24 fd00:50::/64]} <nil>" {
		t.Errorf("got %s", got)
	}
	for _, text := range []string{"blue", "blue=", "blue=10.0.0.1", "=x"} {
		if _, err := ParseNetwork(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("nodes: 3\nsubnets: {pods: [10.244.0.0/16/24]}"))
	f.Add([]byte("kubelet: {config: {a: [1, {b: c}]}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		if c, err = c.Default(); err == nil && (len(c.NodeSubnets()) == 0 || len(c.NodeSubnets()) != len(c.PodSubnets())) {
			t.Errorf("accepted without ranges for every family: %+v", c)
		}
	})
}
