package reader

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestSettingsUnknown: where the settings are not known, the answer assumes that features are enabled, and says so. That they are
// disabled, which is what an empty file means, would be a wrong answer about every pod.
func TestSettingsUnknown(t *testing.T) {
	for name, data := range map[string]map[string]string{
		"no file":       nil,
		"another file":  {"other.conf": "[ovnkubernetesfeature]\nenable-egress-ip=true\n"},
		"an empty file": {fileName: " \n"},
		"invalid":       {fileName: "[default]\nmtu=no\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakeapi.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ovn-kubernetes", Name: configMap}, Data: data})
			s, note, err := FromConfigMap(t.Context(), c, "ovn-kubernetes")
			if err != nil {
				t.Fatal(err)
			}
			wants := name != "an empty file" // which is valid
			if unknown := strings.Contains(note, "all features are taken to be enabled"); unknown != wants || s.EgressIP != wants || s.RangesUnknown != wants {
				t.Errorf("note %q, EgressIP %v, ranges unknown %v", note, s.EgressIP, s.RangesUnknown)
			}
		})
	}
}

// TestSettingsHostPorts: ports that nodes use because of the configuration are known.
func TestSettingsHostPorts(t *testing.T) {
	c := fakeapi.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ovn-kubernetes", Name: configMap},
		Data: map[string]string{fileName: "[kubernetes]\napiserver=https://192.0.2.10:6443\n[default]\nencap-port=6082\n[ovnkubernetesfeature]\negressip-node-healthcheck-port=31000\n"}})
	s, note, err := FromConfigMap(t.Context(), c, "ovn-kubernetes")
	want := []service.HostPort{{Protocol: "udp", Port: 6082}, {Protocol: "tcp", Port: 31000}}
	if err != nil || note != "" || !slices.Equal(s.HostPorts, want) {
		t.Errorf("ports %v, want %v; note %q, %v", s.HostPorts, want, note, err)
	}
}

// TestSettingsAPIServer: where the settings do not give the address at which ovnkube reaches the API server, which the master
// reserves, the answer says so.
func TestSettingsAPIServer(t *testing.T) {
	for text, want := range map[string]struct{ at, note string }{
		"apiserver=https://192.0.2.10:6443":                                     {"[192.0.2.10:6443]", ""},
		"apiserver=https://[2001:db8::10]:6443":                                 {"[[2001:db8::10]:6443]", ""},
		"apiserver=https://api.example.org:6443":                                {"[]", "the host name in https://api.example.org:6443"},
		"kubeconfig=/etc/kubernetes/ovnkube.conf\napiserver=https://192.0.2.10": {"[]", "the kubeconfig /etc/kubernetes/ovnkube.conf"},
		"": {"[]", "the environment of its pods"},
	} {
		c := fakeapi.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ovn-kubernetes", Name: configMap},
			Data: map[string]string{fileName: "[kubernetes]\n" + text + "\n"}})
		s, note, err := FromConfigMap(t.Context(), c, "ovn-kubernetes")
		if err != nil || fmt.Sprint(s.APIServers) != want.at || (note == "") != (want.note == "") || !strings.Contains(note, want.note) {
			t.Errorf("%q: API servers %v, note %q, %v", text, s.APIServers, note, err)
		}
	}
}
