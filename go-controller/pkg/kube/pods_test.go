package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodUID(t *testing.T) {
	const hash = "5795a88e7538fed15bd850ac41358d25"
	for name, test := range map[string]struct {
		annotations map[string]string
		want        string
		mirror      bool
	}{
		"a pod":                        {nil, "u", false},
		"a mirror":                     {map[string]string{corev1.MirrorPodAnnotationKey: hash}, hash, true},
		"a hash without a mirror":      {map[string]string{"kubernetes.io/config.hash": hash}, "u", false},
		"an annotation without a UID":  {map[string]string{corev1.MirrorPodAnnotationKey: ""}, "u", false},
		"an annotation that is no UID": {map[string]string{corev1.MirrorPodAnnotationKey: strings.Repeat("x", 129)}, "u", false},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: test.annotations}}
		if got := PodUID(p); string(got) != test.want || IsMirror(p) != test.mirror {
			t.Errorf("%s: UID %q, mirror %t", name, got, IsMirror(p))
		}
	}
}
