package kube

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestMissedDeletionOfMirror: a mirror pod whose deletion happened between two watches stays as long as one whose
// deletion was reported, whether the informer lists or starts a watch with all objects.
func TestMissedDeletionOfMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrors()
		ended := mirror("ended", "u2")
		ended.Status.Phase = corev1.PodSucceeded
		m.list(&corev1.PodList{Items: []corev1.Pod{*mirror("static", "u1"), *ended, *mirror("other", "u3")}})
		page := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Pod{*mirror("other", "u3")}}
		m.list(page)
		if n := len(page.Items); n != 2 || page.Items[1].Name != "static" {
			t.Errorf("%d pods are listed: %v", n, page.Items)
		}
		w := m.watch(watch.NewFake(), false)
		defer w.Stop()
		<-time.After(MirrorGrace - time.Second)
		synctest.Wait()
		select {
		case e := <-w.ResultChan():
			t.Errorf("told %v before the grace period is over", e)
		default:
		}
		if e := <-w.ResultChan(); e.Type != watch.Deleted || e.Object.(*corev1.Pod).Name != "static" {
			t.Errorf("told %v", e)
		}

		all := watch.NewFake()
		w = m.watch(all, true)
		defer w.Stop()
		go func() {
			all.Add(mirror("new", "u4"))
			all.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "8",
				Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
		}()
		for _, want := range []struct {
			what watch.EventType
			name string
		}{{watch.Added, "new"}, {watch.Added, "other"}, {watch.Bookmark, ""}, {watch.Deleted, "other"}} {
			if e := <-w.ResultChan(); e.Type != want.what || e.Object.(*corev1.Pod).Name != want.name {
				t.Errorf("told %v, want %v", e, want)
			}
		}
	})
}
