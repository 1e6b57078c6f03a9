package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// mirror returns the mirror pod of a static pod.
func mirror(name, uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status:     corev1.PodStatus{StartTime: &metav1.Time{Time: time.Unix(1, 0)}},
	}
}

// TestMadeUpMirrorsDoNotStay: a pod that a user has given the annotation of a mirror pod is removed when
// it is deleted, and a recreated mirror pod stays although the kubelet has not reported yet that its
// pod is running.
func TestMadeUpMirrorsDoNotStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t, fakeapi.NewClientset())
		madeUp, again := mirror("x", "u1"), mirror("static", "u3")
		madeUp.Status.StartTime, again.Status.StartTime = nil, nil
		w.create(madeUp)
		w.remove("x")
		w.tells("of what nobody runs", "add x u1", "delete x u1")
		w.create(mirror("static", "u2"))
		w.remove("static")
		w.create(again)
		w.remove("static")
		w.tells("of a static pod", "add static u2", "update static u3")
	})
}

// watched is an informer of pods with the events it has sent.
type watched struct {
	t        *testing.T
	cs       *fake.Clientset
	informer cache.SharedIndexInformer

	mu   sync.Mutex
	told []string
}

func newWatched(t *testing.T, cs *fake.Clientset) *watched {
	factory := LateMirrors(informers.NewSharedInformerFactory(cs, fakeapi.NoResync), nil)
	w := &watched{t: t, cs: cs, informer: factory.Core().V1().Pods().Informer()}
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { w.note("add", obj) },
		UpdateFunc: func(_, obj any) { w.note("update", obj) },
		DeleteFunc: func(obj any) { w.note("delete", obj) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	synctest.Wait()
	return w
}

func (w *watched) note(what string, obj any) {
	p := obj.(*corev1.Pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprintf("%s %s %s", what, p.Name, p.UID))
}

// tells fails unless exactly the given events were sent since the last call.
func (w *watched) tells(when string, want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.told, want) {
		w.t.Errorf("%s: told %q, want %q", when, w.told, want)
	}
	w.told = nil
}

func (w *watched) create(p *corev1.Pod) {
	if _, err := w.cs.CoreV1().Pods("ns").Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func (w *watched) remove(name string) {
	if err := w.cs.CoreV1().Pods("ns").Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// TestMirrorIsMadeAnew: watchers of pods get no deletion event of a mirror pod that
// is recreated in time, and a delayed one if it is not.
func TestMirrorIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t, fakeapi.NewClientset(mirror("static", "u1")))
		w.tells("at the start", "add static u1")
		w.remove("static")
		<-time.After(MirrorGrace - time.Second)
		w.tells("while the mirror is absent")
		if n := len(w.informer.GetIndexer().ListKeys()); n != 1 {
			t.Errorf("%d pods are known meanwhile", n)
		}
		w.create(mirror("static", "u2"))
		w.tells("when the mirror is made anew", "update static u2")
		<-time.After(2 * MirrorGrace)
		w.tells("later")
		w.remove("static")
		w.create(mirror("other", "u3"))
		<-time.After(time.Second)
		w.remove("other")
		w.tells("of others meanwhile", "add other u3")
		<-time.After(MirrorGrace - time.Second)
		w.tells("when the first is given up", "delete static u2")
		<-time.After(time.Second)
		w.tells("when the second is given up", "delete other u3")
		host := mirror("host", "u4") // it may be an external gateway
		host.Spec.HostNetwork = true
		w.create(host)
		w.remove("host")
		w.tells("of one on its host's network", "add host u4")
		<-time.After(MirrorGrace)
		synctest.Wait()
		w.tells("when that is given up", "delete host u4")
		if n := len(w.informer.GetIndexer().ListKeys()); n != 0 {
			t.Errorf("%d pods are left", n)
		}
	})
}

// TestNextMirrorHasTheStatus: a recreated mirror pod has the status of the previous one, in a
// watch and in a list, until the kubelet reports a new one; the mirror pod of another pod does not.
func TestNextMirrorHasTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t, fakeapi.NewClientset())
		first, next, changed, other := mirror("static", "u1"), mirror("static", "u2"), mirror("static", "u2"), mirror("static", "u3")
		first.Status.PodIPs = []corev1.PodIP{{IP: "10.244.0.9"}, {IP: "fd00:10:244:1::9"}}
		next.Status, other.Status = corev1.PodStatus{}, corev1.PodStatus{}
		changed.Status.PodIPs = []corev1.PodIP{{IP: "10.244.0.10"}}
		other.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "another"}
		has := func(when string, want []corev1.PodIP) {
			t.Helper()
			synctest.Wait()
			obj, _, _ := w.informer.GetIndexer().GetByKey("ns/static")
			if p, ok := obj.(*corev1.Pod); !ok || !slices.Equal(p.Status.PodIPs, want) {
				t.Errorf("%s: %+v, want %v", when, obj, want)
			}
		}
		w.create(first)
		w.remove("static")
		w.create(next)
		has("made anew", first.Status.PodIPs)
		w.remove("static")
		has("without a mirror again", first.Status.PodIPs)
		w.create(next)
		if _, err := w.cs.CoreV1().Pods("ns").UpdateStatus(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		has("when the kubelet has said more", changed.Status.PodIPs)
		w.remove("static")
		w.create(other)
		has("of another pod", nil)

		m := newMirrors()
		m.list(&corev1.PodList{Items: []corev1.Pod{*first}})
		page := &corev1.PodList{Items: []corev1.Pod{*next}}
		if m.list(page); !slices.Equal(page.Items[0].Status.PodIPs, first.Status.PodIPs) {
			t.Errorf("listed with %v", page.Items[0].Status.PodIPs)
		}
	})
}

// TestOnlyStaticPodsStay: the deletion of any other pod is reported at once, also of a static
// pod that is finished.
func TestOnlyStaticPodsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t, fakeapi.NewClientset())
		plain, ended, failed := mirror("plain", "u1"), mirror("ended", "u2"), mirror("failed", "u3")
		plain.Annotations, ended.Status.Phase, failed.Status.Phase = nil, corev1.PodSucceeded, corev1.PodFailed
		for _, p := range []*corev1.Pod{plain, ended, failed} {
			w.create(p)
			w.remove(p.Name)
			w.tells(p.Name, fmt.Sprintf("add %s %s", p.Name, p.UID), fmt.Sprintf("delete %s %s", p.Name, p.UID))
		}
	})
}

// TestAbsentMirrorsOutlastTheWatch: a list and a watch that start while a mirror pod is absent
// continue from that state.
func TestAbsentMirrorsOutlastTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrors()
		first := watch.NewFake()
		w := m.watch(first, false)
		for _, name := range []string{"away", "back"} {
			first.Delete(mirror(name, "u1"))
		}
		<-time.After(time.Minute)
		first.Delete(mirror("away", "u1")) // repeated, it does not restart the timer
		synctest.Wait()
		w.Stop()
		pages := []*corev1.PodList{
			{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []corev1.Pod{*mirror("back", "u2")}},
			{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Pod{*mirror("new", "u3")}},
		}
		var listed []string
		for _, page := range pages {
			m.list(page)
			for _, p := range page.Items {
				listed = append(listed, fmt.Sprint(p.Name, " ", p.UID))
			}
		}
		if want := []string{"back u2", "new u3", "away u1"}; !slices.Equal(listed, want) {
			t.Errorf("listed %q, want %q", listed, want)
		}
		// Nothing reads from this watch, and its events are not lost.
		m.watch(watch.NewFake(), false).Stop()
		unread := m.watch(watch.NewFake(), true)
		<-time.After(MirrorGrace - time.Minute)
		synctest.Wait()
		unread.Stop()
		w = m.watch(watch.NewFake(), true)
		defer w.Stop()
		for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
			e := <-w.ResultChan()
			if p := e.Object.(*corev1.Pod); e.Type != want || p.Name != "away" || p.ResourceVersion != "7" {
				t.Errorf("told %s of %s at %s, want %s", e.Type, p.Name, p.ResourceVersion, want)
			}
		}
		synctest.Wait()
		if len(m.absent) > 0 {
			t.Errorf("still absent are %v", m.absent)
		}
	})
}
