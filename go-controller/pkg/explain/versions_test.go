package explain

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// running adds a pod of ovnkube's own that runs an image.
func running(name, container, image, id string, change ...func(*corev1.Pod)) func(*Snapshot) {
	return func(s *Snapshot) {
		s.System = "ovn-kubernetes"
		p := pod("ovn-kubernetes/"+name, "ovn-worker", 9)
		p.Spec.HostNetwork = true
		p.Spec.Containers = []corev1.Container{{Name: container, Image: image}}
		if id != "" {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, ImageID: id}}
		}
		for _, f := range change {
			f(p)
		}
		s.Pods = append(s.Pods, p)
	}
}

func TestVersions(t *testing.T) {
	type change = func(*Snapshot)
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	elsewhere := func(p *corev1.Pod) { p.Namespace = "prod" }
	for _, tc := range []struct {
		name  string
		world []change
		want  string
	}{
		{"no pods", []change{func(s *Snapshot) { s.System = "ovn-kubernetes" }}, ""},
		{"not known where", []change{running("a", "ovnkube-node", "ovnkube:v1", "1"), func(s *Snapshot) { s.System = "" }}, ""},
		{"an update under way", []change{running("a", "ovnkube-node", "ovnkube:v2", "2"), running("b", "ovnkube-node", "ovnkube:v1", "1"),
			running("c", "ovnkube-node", "ovnkube:v1", "1"), running("m", "ovnkube-master", "ovnkube:v2", "2")},
			"ovnkube-master ovnkube:v2 2 1; ovnkube-node ovnkube:v1 1 2; ovnkube-node ovnkube:v2 2 1"},
		{"one name and two images", []change{running("a", "ovnkube-node", "ovnkube:latest", "2"), running("b", "ovnkube-node", "ovnkube:latest", "1"),
			running("c", "ovnkube-node", "ovnkube:latest", "")}, "ovnkube-node ovnkube:latest  1; ovnkube-node ovnkube:latest 1 1; ovnkube-node ovnkube:latest 2 1"},
		{"those that have ended", []change{running("a", "ovnkube-node", "ovnkube:v1", "1", ended)}, ""},
		{"those of others", []change{running("a", "ovnkube-node", "ovnkube:v1", "1", elsewhere)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, v := range cluster(t, tc.world...).Status().Versions {
				got = append(got, fmt.Sprintf("%s %s %s %d", v.Container, v.Image, v.ID, v.Pods))
			}
			if text := strings.Join(got, "; "); text != tc.want {
				t.Errorf("got  %s\nwant %s", text, tc.want)
			}
		})
	}
}
