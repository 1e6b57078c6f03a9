package master

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
)

// mirrored makes a pod the mirror pod of a static pod with a hash.
func mirrored(hash string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash}
		p.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)}
	}
}

// uidOf returns the UID in the port of a pod.
func (c *cluster) uidOf(name string) string {
	given, _ := pod.AddressesIn(c.nb.Rows(pod.Owner("ns/" + name)))
	return given.UID
}

// TestStaticPodKeepsItsPort: the port of a static pod does not change while its mirror pod is
// deleted and recreated, whichever master is running, and is removed with the pod.
func TestStaticPodKeepsItsPort(t *testing.T) {
	for _, restart := range []string{"", "absent", "anew"} {
		t.Run("restart "+restart, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				defer func() { c.stop() }()
				c.addNode("n", "10.244.1.0/24", "fd00::/64")
				c.start(pod.Config{DisableSNATMultipleGWs: true})
				c.addPod("static", "n", mirrored("hash"))
				c.waitPort("static", "10.244.1.3 fd00::3")
				synctest.Wait()
				before := c.nb.Dump()
				if got := c.uidOf("static"); got != "hash" {
					t.Errorf("the port is for %q", got)
				}
				again := func(at string) {
					if restart == at {
						c.stop()
						c.start(pod.Config{DisableSNATMultipleGWs: true})
						synctest.Wait()
					}
				}
				c.deletePod("static")
				again("absent")
				<-time.After(kube.MirrorGrace - time.Second)
				c.addPod("other", "n")
				synctest.Wait()
				c.waitPort("other", "10.244.1.4 fd00::4")
				c.deletePod("other")
				synctest.Wait()
				if now := c.nb.Dump(); now != before {
					t.Errorf("rows while the mirror is absent\n%s\nbefore\n%s", now, before)
				}
				c.addPod("static", "n", mirrored("hash"))
				again("anew")
				<-time.After(2 * kube.MirrorGrace)
				synctest.Wait()
				if now := c.nb.Dump(); now != before {
					t.Errorf("rows with a new mirror\n%s\nbefore\n%s", now, before)
				}
				if network, ok, err := kube.PodNetwork(c.getPod("static")); err != nil || !ok || network.Addrs[0].String() != "10.244.1.3/24" {
					t.Errorf("the new mirror says %v, %t, %v", network, ok, err)
				}
				c.deletePod("static")
				again("absent")
				<-time.After(kube.MirrorGrace + time.Second)
				c.waitPort("static", "-")
				c.addPod("next", "n")
				synctest.Wait()
				if c.port("next") == "-" {
					t.Error("the next pod has no port")
				}
			})
		})
	}
}

// TestStaticPodWithAnotherManifest: a changed manifest results in a different pod, and the
// rows of the first one are removed at once.
func TestStaticPodWithAnotherManifest(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.start(pod.Config{})
	c.addPod("static", "n", mirrored("hash"))
	c.waitPort("static", "10.244.1.3")
	c.deletePod("static")
	c.addPod("static", "n", mirrored("other"))
	c.wait("the port of the other pod", func() bool { return c.uidOf("static") == "other" })
}

// TestStalePortOfAnOlderVersion: a port that an earlier version wrote for the mirror pod of a
// static pod is transferred to the static pod, with its addresses.
func TestStalePortOfAnOlderVersion(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.start(pod.Config{})
	c.addPod("first", "n")
	c.addPod("static", "n", mirrored("hash"), isRunning, func(p *corev1.Pod) { p.Status.PodIPs[0].IP = "10.244.1.7" })
	c.waitPort("static", "10.244.1.7")
	c.stop()
	var rows []nb.Row
	for _, r := range c.nb.Rows(pod.Owner("ns/static")) {
		if port, ok := r.Model.(*nbdb.LogicalSwitchPort); ok {
			port.Options["iface-id-ver"] = string(c.getPod("static").UID)
			delete(port.ExternalIDs, "static")
		}
		rows = append(rows, r)
	}
	if _, err := c.nb.Apply(context.Background(), pod.Owner("ns/static"), rows); err != nil {
		t.Fatal(err)
	}
	c.start(pod.Config{})
	c.wait("the port to be for the pod", func() bool { return c.uidOf("static") == "hash" && c.port("static") == "10.244.1.7" })
}
