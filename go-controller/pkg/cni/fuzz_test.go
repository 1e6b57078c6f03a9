package cni_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FuzzRequest decodes what the shim passes on from a runtime, and everything derived from
// it.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"command":"ADD","containerID":"4f1b","netns":"/run/netns/cni-1","ifName":"eth0","args":"IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_UID=c","config":"e30="}`),
		[]byte(`{"cniVersion":"1.0.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay","socket":"/x"}`), `10.244.1.5/24`)
	f.Add([]byte(`{"Command":"DEL","ContainerID":"","IfName":""}`), []byte(`{"type":1}`), "fd00::5/64")
	f.Fuzz(func(t *testing.T, request, conf []byte, addr string) {
		_, _ = cni.ParseConf(conf)
		var r cni.Request
		if json.Unmarshal(request, &r) != nil {
			return
		}
		var network topology.PodNetwork
		_ = json.Unmarshal([]byte(`{"MAC":"0a:58:0a:f4:01:05","Addrs":["`+addr+`"]}`), &network)
		if name := cni.HostLink(r.ContainerID, r.IfName); len(name) > 15 || strings.ContainsAny(name, "/ \x00") {
			t.Errorf("link %q", name)
		}
		cni.PortIDs(r, network)
		for _, p := range network.Addrs {
			if !p.IsValid() {
				return
			}
		}
		if _, err := json.Marshal(cni.Result(r, network, "0a:58:00:00:00:01", 1400)); err != nil {
			t.Error(err)
		}
	})
}
