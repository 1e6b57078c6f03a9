package cluster

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
)

// TestKustomization: the configuration file has the settings of the cluster, and each
// workload the arguments of its role.
func TestKustomization(t *testing.T) {
	cfg, err := config.Cluster{Name: "kin", GatewayMode: config.GatewayLocal, IPFamily: config.FamilyDual,
		Ovnkube: config.Ovnkube{Args: []string{"--loglevel=5"}, NodeArgs: []string{"--egressip-node-healthcheck-port=9107"}}}.Default()
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{name: "kin"}
	c.Config = cfg
	text, err := c.kustomization("../overlay")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Resources []string `json:"resources"`
		Patches   []struct {
			Patch  string            `json:"patch"`
			Target map[string]string `json:"target"`
		} `json:"patches"`
	}
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Resources) != 1 || got.Resources[0] != "../overlay" || len(got.Patches) != 3 {
		t.Fatalf("resources %v, %d patches:\n%s", got.Resources, len(got.Patches), text)
	}
	for _, want := range []string{"mode=local", "nodeport=true", "cluster-subnets=10.244.0.0/16", "apiserver=https://172.18.0.2:6443", "address=ssl:172.18.0.2:6642", `"northbound":"ssl:172.18.0.2:6641"`, `"masters-southbound":"ssl:172.18.0.2:6643"`} {
		if !strings.Contains(got.Patches[0].Patch, want) {
			t.Errorf("the settings have no %s: %s", want, got.Patches[0].Patch)
		}
	}
	master, node := got.Patches[1], got.Patches[2]
	if master.Target["kind"] != "Deployment" || strings.Contains(master.Patch, "healthcheck") || !strings.Contains(master.Patch, "--loglevel=5") {
		t.Errorf("arguments of the master: %+v", master)
	}
	if node.Target["kind"] != "DaemonSet" || !strings.Contains(node.Patch, "--egressip-node-healthcheck-port=9107") || !strings.Contains(node.Patch, "--loglevel=5") {
		t.Errorf("arguments of the nodes: %+v", node)
	}
}
