package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestPatches: the result of a patch counts until the lister shows it or something newer.
func TestPatches(t *testing.T) {
	namespace := func(uid types.UID, version string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: uid, ResourceVersion: version}}
	}
	from, result := namespace("a", "8"), namespace("a", "12")
	for name, test := range map[string]struct {
		shown   *corev1.Namespace
		patched bool
	}{
		"what was patched":               {from, true},
		"a state of before, seen later":  {namespace("a", "9"), true},
		"fewer digits are not a later":   {namespace("a", "11"), true},
		"the result":                     {namespace("a", "12"), false},
		"a later state":                  {namespace("a", "100"), false},
		"another object with that name":  {namespace("b", "9"), false},
		"versions that are not numbers":  {namespace("a", "x9"), false},
		"an object that has no version":  {namespace("a", ""), false},
		"the same version, copied again": {from.DeepCopy(), true},
	} {
		t.Run(name, func(t *testing.T) {
			var p Patches[*corev1.Namespace]
			if got := p.Known("prod", test.shown); got != test.shown {
				t.Fatalf("before any patch: %v", got)
			}
			p.Record("prod", from, result)
			want := test.shown
			if test.patched {
				want = result
			}
			if got := p.Known("prod", test.shown); got != want {
				t.Errorf("known: version %s, want %s", got.ResourceVersion, want.ResourceVersion)
			}
			if !test.patched { // the lister never goes back behind what it has shown
				if got := p.Known("prod", from); got != from {
					t.Errorf("the patch is remembered: version %s", got.ResourceVersion)
				}
			}
			p.Record("prod", from, result)
			p.Forget("prod")
			if got := p.Known("prod", from); got != from {
				t.Errorf("after Forget: version %s", got.ResourceVersion)
			}
		})
	}
}
