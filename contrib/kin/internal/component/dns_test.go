package component

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
)

func TestNameServerIsWhereKubeletsSendPods(t *testing.T) {
	for family, want := range map[string][]string{
		config.FamilyDual: {"10.96.0.10", "fd00:10:96::a"},
		config.FamilyIPv4: {"10.96.0.10"},
		config.FamilyIPv6: {"fd00:10:96::a"},
	} {
		n := nodes(t, config.Cluster{IPFamily: family})[0]
		files, err := n.Files()
		if err != nil {
			t.Fatal(err)
		}
		var kubelet struct {
			ClusterDNS []string `json:"clusterDNS"`
		}
		if err := yaml.Unmarshal(files[kubeletConfigFile], &kubelet); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(kubelet.ClusterDNS, want) {
			t.Errorf("%s: kubelets send pods to %v", family, kubelet.ClusterDNS)
		}
		service := object(t, n.Config, "Service")
		if got := service.Spec.ClusterIPs; !slices.Equal(got, want) || service.Spec.ClusterIP != want[0] {
			t.Errorf("%s: the name server is at %s, %v", family, service.Spec.ClusterIP, got)
		}
		policy := map[int]string{1: "SingleStack", 2: "RequireDualStack"}[len(want)]
		if service.Spec.IPFamilyPolicy != policy {
			t.Errorf("%s: policy is %s", family, service.Spec.IPFamilyPolicy)
		}
	}
}

func TestNameServerServesTheDomainOfTheKubelets(t *testing.T) {
	n := nodes(t, config.Cluster{})[0]
	files, err := n.Files()
	if err != nil {
		t.Fatal(err)
	}
	var kubelet struct {
		ClusterDomain string `json:"clusterDomain"`
	}
	if err := yaml.Unmarshal(files[kubeletConfigFile], &kubelet); err != nil {
		t.Fatal(err)
	}
	if corefile := object(t, n.Config, "ConfigMap").Data["Corefile"]; !strings.Contains(corefile, "kubernetes "+kubelet.ClusterDomain+" ") {
		t.Errorf("kubelets tell pods %s, the Corefile is\n%s", kubelet.ClusterDomain, corefile)
	}
}

type manifest struct {
	Kind string            `json:"kind"`
	Data map[string]string `json:"data"`
	Spec struct {
		ClusterIP      string   `json:"clusterIP"`
		ClusterIPs     []string `json:"clusterIPs"`
		IPFamilyPolicy string   `json:"ipFamilyPolicy"`
	} `json:"spec"`
}

// object returns the only object of a kind in the name server's manifest.
func object(t *testing.T, c config.Cluster, kind string) manifest {
	t.Helper()
	text, err := DNS(c)
	if err != nil {
		t.Fatal(err)
	}
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var m manifest
		if err := yaml.Unmarshal(part, &m); err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		if m.Kind == kind {
			return m
		}
	}
	t.Fatalf("no %s in\n%s", kind, text)
	return manifest{}
}
