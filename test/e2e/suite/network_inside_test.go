package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// inside has the pods of an EgressService whose network has a default route connect to everything
// that is not outside the cluster: pods, nodes, Services and the API server, in both families. A
// node also connects to the Service by its node port, where the replies come from the cluster
// address.
func (s *suite) inside(t *testing.T, pods []lab.Pod) {
	t.Helper()
	ctx := t.Context()
	svc, err := s.Kube.CoreV1().Services(lab.Namespace).Get(ctx, blueName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually := func(what string, f func(ctx context.Context) error) {
		t.Helper()
		if err := lab.Until(ctx, leakPatience/3, what, f); err != nil {
			t.Error(err)
		}
	}
	for _, pod := range pods {
		for _, is4 := range []bool{true, false} {
			own, err := s.nodeAddress(ctx, pod.Node, is4)
			if err != nil {
				t.Fatal(err)
			}
			reach := func(to, want netip.Addr) {
				t.Helper()
				eventually(fmt.Sprintf("%s to reach %s", pod.Name, to), func(ctx context.Context) error {
					have, err := s.SeenFromPod(ctx, pod.Name, to)
					if err == nil && want.IsValid() && have != want {
						err = fmt.Errorf("it was seen as %s, want %s", have, want)
					}
					return err
				})
			}
			for _, server := range []string{"a", "b"} {
				reach(s.servers[server].Address(is4), pod.Address(is4))
			}
			for _, node := range nodes {
				to, err := s.nodeAddress(ctx, node, is4)
				if err != nil {
					t.Fatal(err)
				}
				want := own
				if node == pod.Node {
					want = pod.Address(is4)
				}
				reach(to, want)
			}
			for _, text := range svc.Spec.ClusterIPs {
				if a := netip.MustParseAddr(text); a.Is4() == is4 {
					reach(a, netip.Addr{}) // one of its own pods answers
				}
			}
		}
		eventually(pod.Name+" to reach the API server", func(ctx context.Context) error {
			return s.apiServerAnswers(ctx, pod.Name)
		})
	}
	for _, caller := range nodes {
		to, err := s.NodeAddresses(ctx, pods[0].Node)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range to {
			url := "http://" + netip.AddrPortFrom(a, uint16(svc.Spec.Ports[0].NodePort)).String() + "/clientip"
			eventually(caller+" to reach "+url, func(ctx context.Context) error { return s.Get(ctx, caller, url) })
		}
	}
}

// apiServerAnswers sends the API server, at its Service address, a plain HTTP request from a pod,
// which it must reject: it speaks TLS only.
func (s *suite) apiServerAnswers(ctx context.Context, pod string) error {
	svc, err := s.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return err
	}
	to := netip.AddrPortFrom(netip.MustParseAddr(svc.Spec.ClusterIP), uint16(svc.Spec.Ports[0].Port))
	out, err := s.Call(ctx, pod, true, "get", "http://"+to.String()+"/")
	if err == nil || !strings.Contains(err.Error(), "400") {
		return errors.Join(err, fmt.Errorf("the API server said %q, want a refusal of HTTP", out))
	}
	return nil
}
