package master

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestStaticGatewayPod: a static pod stays a gateway while its mirror pod is deleted, gracefully
// or not, and recreated, when its status is unknown at first.
func TestStaticGatewayPod(t *testing.T) {
	eachFamily(t, func(t *testing.T, gateways []string) {
		for _, hostNetwork := range []bool{false, true} {
			w := outage(t, gateways...)
			pods := w.kube.CoreV1().Pods("gw")
			mirror, err := pods.Get(t.Context(), "p1-9", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			mirror.Annotations[corev1.MirrorPodAnnotationKey] = "hash"
			mirror.Status.StartTime, mirror.Spec.HostNetwork = &metav1.Time{Time: time.Unix(1, 0)}, hostNetwork
			if mirror, err = pods.Update(t.Context(), mirror, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			fakeapi.Settle()
			before := w.patchCount()
			ends := mirror.DeepCopy()
			ends.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			if _, err := pods.Update(t.Context(), ends, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			fakeapi.Settle()
			w.using(gateways...)
			if err := pods.Delete(t.Context(), mirror.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			fakeapi.Settle()
			w.using(gateways...)
			next := mirror.DeepCopy()
			next.UID, next.ResourceVersion, next.Status = "next", "", corev1.PodStatus{}
			if _, err := pods.Create(t.Context(), next, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			fakeapi.Settle()
			w.using(gateways...)
			if n := w.patchCount() - before; n != 0 {
				t.Errorf("%d patches:\n%s", n, w)
			}
			if err := pods.Delete(t.Context(), mirror.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			<-time.After(3 * time.Minute)
			fakeapi.Settle()
			w.using(gateways[1])
			w.stop()
		}
	})
}

// TestStaticPodWithGateways: a static pod leaves by its gateways all the time.
func TestStaticPodWithGateways(t *testing.T) {
	eachFamily(t, func(t *testing.T, gateways []string) {
		w := outage(t, gateways...)
		mirror := pod("red", 0, 5)
		mirror.Annotations[corev1.MirrorPodAnnotationKey] = "hash"
		mirror.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)}
		w.create(mirror)
		fakeapi.Settle()
		rows := func(when string) string {
			t.Helper()
			fakeapi.Settle()
			all := w.nb.(interface{ Dump() string }).Dump()
			if !strings.Contains(all, "10.244.0.8") && strings.Contains(gateways[0], ".") {
				t.Errorf("%s: no rows of the static pod:\n%s", when, all)
			}
			return all
		}
		before := rows("at first")
		pods := w.kube.CoreV1().Pods("red")
		if err := pods.Delete(t.Context(), mirror.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if rows("without a mirror") != before {
			t.Error("rows changed when the mirror was deleted")
		}
		next := mirror.DeepCopy()
		next.UID, next.Status = "next", corev1.PodStatus{}
		if _, err := pods.Create(t.Context(), next, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if rows("with the next mirror") != before {
			t.Error("rows changed when the mirror was made anew")
		}
	})
}
