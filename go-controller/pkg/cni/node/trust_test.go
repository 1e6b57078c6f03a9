package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestAddBelievesNoAnnotation attaches pods with wrong annotations: ADD waits until the
// master has repaired them, and reports what the pod was assigned.
func TestAddBelievesNoAnnotation(t *testing.T) {
	for name, value := range map[string]string{
		"another pod's address": strings.NewReplacer("1.5", "1.6", "::5", "::6").Replace(podNetwork),
		"router's MAC":          strings.ReplaceAll(podNetwork, ":05", ":01"),
		"three addresses":       `{"default":{"ip_addresses":["10.244.1.66/24","10.244.1.67/24","10.244.1.68/24"],"mac_address":"0a:58:0a:f4:01:01","gateway_ips":["10.244.1.1"]}}`,
		"another gateway":       strings.ReplaceAll(podNetwork, `"10.244.1.1"`, `"10.244.1.9"`),
		"another length":        strings.ReplaceAll(podNetwork, "/24", "/16"),
		"one family":            `{"default":{"ip_addresses":["10.244.1.5/24"],"mac_address":"0a:58:0a:f4:01:05","gateway_ips":["10.244.1.1"]}}`,
		"the zero prefix":       `{"default":{"ip_addresses":[""],"mac_address":"0a:58:0a:f4:01:05"}}`,
		"no JSON":               `{`,
		"null":                  `null`,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.pod("web", "u1", value)
			l.sandbox("sb1")
			type outcome struct {
				result any
				err    error
			}
			ended := make(chan outcome, 1)
			done := l.ns.Go(func() {
				result, err := l.handle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
				ended <- outcome{result, err}
			})
			eventually.True(t, "ADD to wait", func() bool {
				l.server.pods.mu.Lock()
				defer l.server.pods.mu.Unlock()
				return len(l.server.pods.waiters["ns/web"]) == 2 // for the pod and for its deletion
			})
			p, err := l.kube.CoreV1().Pods("ns").Get(context.Background(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := kube.PatchPod(context.Background(), l.kube, p, kube.Metadata{
				Annotations: map[string]*string{kube.AnnotationPodNetworks: kube.Value(podNetwork)}}); err != nil {
				t.Fatal(err)
			}
			<-done
			end := <-ended
			if end.err != nil {
				t.Fatal(end.err)
			}
			result := end.result.(*current.Result)
			if len(result.IPs) != 2 || result.IPs[0].Address.String() != "10.244.1.5/24" || result.IPs[1].Address.String() != "fd00:10:244:2::5/64" ||
				result.Interfaces[1].Mac != "0a:58:0a:f4:01:05" || result.IPs[0].Gateway.String() != "10.244.1.1" {
				t.Errorf("ADD reports %+v", result)
			}
			if got := l.ns.Run("ip", "-n", "sb1", "-br", "addr", "show", "eth0"); !strings.Contains(got, "10.244.1.5/24") ||
				strings.Contains(got, "10.244.1.6") {
				t.Errorf("the pod has %s", got)
			}
		})
	}
}

// TestAddSaysWhatItWaitsFor: what may be missing while the annotation exists.
func TestAddSaysWhatItWaitsFor(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(l *lab)
		want string
	}{
		{"no port yet", func(l *lab) { l.bindings.set(l.t, "ns_web", "", "") }, "logical port ns_web of this pod is not in the southbound database yet"},
		{"an earlier pod's port", func(l *lab) { l.bindings.set(l.t, "ns_web", "u0", given) }, "logical port ns_web of this pod is not in the southbound database yet"},
		{"no database", func(l *lab) {
			l.bindings.set(l.t, "ns_web", "", "")
			l.bindings.err = errors.New("lost the connection to tcp:1.2.3.4:6642")
		}, "the southbound database cannot be queried for logical port ns_web: lost the connection"},
		{"another address", func(l *lab) { l.bindings.set(l.t, "ns_web", "u1", "0a:58:0a:f4:01:07 10.244.1.7 fd00:10:244:2::7") },
			"but the pod has been given 0a:58:0a:f4:01:07 with [10.244.1.7/24 fd00:10:244:2::7/64]"},
		{"another node's address", func(l *lab) { l.bindings.set(l.t, "ns_web", "u1", "0a:58:0a:f4:02:07 10.244.2.7") },
			"which is not one address of a subnet of this node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.server.Deadline = time.Second
			l.pod("web", "u1", podNetwork)
			c.set(l)
			l.sandbox("sb1")
			if _, err := l.handle(l.request(cni.CommandAdd, "sb1", "web", "u1")); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ADD ended with %v, want %q", err, c.want)
			}
			// Once the port exists ADD continues, even with the last known state of a
			// database that is unavailable.
			l.server.Deadline = eventually.Bound
			l.bindings.set(t, "ns_web", "u1", given)
			done := l.ns.Go(func() {
				if _, err := l.handle(l.request(cni.CommandAdd, "sb1", "web", "u1")); err != nil {
					t.Error(err)
				}
			})
			<-done
		})
	}
}
