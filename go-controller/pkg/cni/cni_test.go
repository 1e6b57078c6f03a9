package cni

import (
	"encoding/json"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
)

func TestParsePod(t *testing.T) {
	p, err := ParsePod("IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_INFRA_CONTAINER_ID=x;K8S_POD_UID=c")
	if want := (Pod{"a", "b", "c"}); err != nil || p != want {
		t.Errorf("got %v, %v, want %v", p, err, want)
	}
	for _, args := range []string{"", "K8S_POD_NAME=b", "K8S_POD_NAMESPACE=a", "nonsense;=;"} {
		if _, err := ParsePod(args); err == nil {
			t.Errorf("%q names no pod, but is accepted", args)
		}
	}
}

func FuzzParsePod(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b")
	f.Fuzz(func(t *testing.T, args string) {
		if p, err := ParsePod(args); err == nil && (p.Namespace == "" || p.Name == "") {
			t.Errorf("%q gives %+v", args, p)
		}
	})
}

func TestHostLink(t *testing.T) {
	seen := map[string]bool{}
	for _, sandbox := range []string{"a", "b", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"} {
		for _, ifName := range []string{"eth0", "net1"} {
			name := HostLink(sandbox, ifName)
			if len(name) != 15 || seen[name] || name != HostLink(sandbox, ifName) {
				t.Errorf("%s/%s gives %q", sandbox, ifName, name)
			}
			seen[name] = true
		}
	}
}

// TestConfFile parses the configuration as runtimes do.
func TestConfFile(t *testing.T) {
	for _, c := range []struct {
		name, plugin, socket string
		hostPorts            bool
	}{
		{"conf", "ovn-k8s-cni-overlay", DefaultSocket, true},
		{"conf-alone", "x", "/a/b", false},
	} {
		text := ConfFile(c.plugin, c.socket, c.hostPorts)
		golden.Check(t, c.name, string(text))
		var list struct {
			CNIVersion, Name string
			Plugins          []json.RawMessage
		}
		if err := json.Unmarshal(text, &list); err != nil || list.Name != NetworkName || list.CNIVersion != SpecVersion {
			t.Fatalf("%s: the runtime reads %+v, %v", c.name, list, err)
		}
		own, err := ParseConf(list.Plugins[0])
		if err != nil || own.Type != c.plugin || own.Socket != c.socket {
			t.Errorf("%s: the plugin reads %+v, %v", c.name, own, err)
		}
	}
	if _, err := ParseConf([]byte("{")); err == nil {
		t.Error("half a configuration is accepted")
	}
}
