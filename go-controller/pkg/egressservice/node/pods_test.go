package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// nodeInformers returns a factory whose pod informer contains only the pods of ovn-worker2: an
// API server filters them, a fake clientset does not.
func (w *world) nodeInformers() informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(w.kube, fakeapi.NoResync)
	own := func(p *corev1.Pod) bool { return p.Spec.NodeName == "ovn-worker2" }
	factory.InformerFor(&corev1.Pod{}, func(cs kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		pods := cs.CoreV1().Pods(metav1.NamespaceAll)
		return cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list, err := pods.List(ctx, o)
				if err != nil {
					return nil, err
				}
				all := list.Items
				list.Items = nil
				for _, p := range all {
					if own(&p) {
						list.Items = append(list.Items, p)
					}
				}
				return list, nil
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				all, err := pods.Watch(ctx, o)
				if err != nil {
					return nil, err
				}
				return watch.Filter(all, func(e watch.Event) (watch.Event, bool) {
					p, ok := e.Object.(*corev1.Pod)
					return e, !ok || own(p)
				}), nil
			},
		}, &corev1.Pod{}, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
	return factory
}

// namespacePods returns an informer of all pods of a namespace.
func (w *world) namespacePods(namespace string) (cache.SharedIndexInformer, error) {
	if namespace == unlisted {
		pods := w.kube.CoreV1().Pods(namespace)
		inf := cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				select {
				case <-w.lists:
					return pods.List(ctx, o)
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
			WatchFuncWithContext: pods.Watch,
		}, &corev1.Pod{}, fakeapi.NoResync, cache.Indexers{})
		return inf, kube.IndexPods(inf)
	}
	inf := informers.NewSharedInformerFactoryWithOptions(w.kube, fakeapi.NoResync, informers.WithNamespace(namespace)).Core().V1().Pods().Informer()
	return inf, kube.IndexPods(inf)
}

// unlisted is a namespace whose pods the API server lists only after world.lists was closed.
const unlisted = "unlisted"

// listed returns the namespaces whose pods were listed since the last call, "" for all.
func (w *world) listed() []string {
	var found []string
	for _, a := range w.kube.Actions() {
		if l, ok := a.(clienttesting.ListAction); ok && a.GetResource().Resource == "pods" {
			found = append(found, l.GetNamespace())
		}
	}
	w.kube.ClearActions()
	return found
}

// TestPodsOfOthers: a node reads the pods of other nodes only in namespaces with
// EgressServices whose host it is, once, and as long as it is; it always knows those of this node.
func TestPodsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 50 {
			name := fmt.Sprintf("svc-%d", i)
			for _, o := range []runtime.Object{service(name, "6.6.6.6"), slice(name, "10.244.0.3", "10.244.1.6")} {
				if err := w.kube.Tracker().Add(o); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.egress.Tracker().Add(egress(name, "ovn-worker")); err != nil {
				t.Fatal(err)
			}
		}
		c := w.start()
		fakeapi.Settle()
		if got := w.listed(); len(got) != 1 {
			t.Errorf("a node that is no host has listed the pods of %q", got)
		}
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the translations", func() bool { return rules(w) == 4 })
		w.update(egress("svc-1", "ovn-worker2"))
		fakeapi.Settle()
		if got := w.listed(); len(got) != 1 || got[0] != "default" {
			t.Errorf("the host of two EgressServices has listed the pods of %q", got)
		}
		for _, name := range []string{"demo-svc", "svc-1"} {
			eg := egress(name, "ovn-worker")
			programmedBy("ovn-worker", true)(&eg.Status)
			w.update(eg)
		}
		w.eventually("the end", func() bool { return rules(w) == 0 })
		fakeapi.Settle()
		if eg := egress("demo-svc", ""); c.reader.Knows(eg) || c.reader.PodAt("default", netip.MustParseAddr("10.244.0.5")) != nil {
			t.Error("the pods of others are still known")
		}
		if c.reader.PodAt("default", netip.MustParseAddr("10.244.1.6")) == nil {
			t.Error("a pod of this node is not known")
		}
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the translations again", func() bool { return rules(w) == 4 })
		if err := w.egress.EgressServiceV1().EgressServices("default").Delete(t.Context(), "demo-svc", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the deletion", func() bool { return !c.reader.Knows(egress("demo-svc", "")) && rules(w) == 0 })
	})
}

// TestPodsAtStart: the host's translations for pods of other nodes exist before pods are
// served, and before the host reports anything.
func TestPodsAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.update(egress("demo-svc", "ovn-worker2"))
		c := w.start()
		<-c.Attempted()
		if rules(w) != 4 {
			t.Errorf("the start is over with\n%s", w.dump())
		}
		fakeapi.Settle()
		patches := slices.DeleteFunc(w.egress.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() != "patch" })
		if len(patches) != 1 {
			t.Errorf("the host has acknowledged %d times, and once is enough", len(patches))
		}
	})
}

// TestOlderHasPodsOfOthers: a pod of another node that an older EgressService selects does
// not belong to this one, even if the node is not the host of the older one.
func TestOlderHasPodsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := egress("old", "ovn-worker")
		old.CreationTimestamp, old.UID = metav1.Unix(1000, 0), types.UID("old")
		for _, o := range []runtime.Object{service("old", "6.6.6.6"), slice("old", "10.244.0.5")} {
			if err := w.kube.Tracker().Add(o); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.egress.Tracker().Add(old); err != nil {
			t.Fatal(err)
		}
		w.start()
		young := egress("demo-svc", "ovn-worker2")
		young.CreationTimestamp = metav1.Unix(2000, 0)
		w.update(young)
		w.eventually("the translations", func() bool { return rules(w) > 0 })
		fakeapi.Settle()
		if strings.Contains(w.dump(), "10.244.0.5/32") || rules(w) != 3 {
			t.Errorf("has\n%s", w.dump())
		}
	})
}

// TestDirectPortsOfOthers: replies of pods of other nodes to which this node's kernel has sent
// requests use the network of an EgressService that every node serves.
func TestDirectPortsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.kernel.tables["blue"] = host.RoutingTable{Number: 7}
		svc, local := service("demo-svc", "5.5.5.5"), corev1.ServiceInternalTrafficPolicyLocal
		svc.Spec.InternalTrafficPolicy = &local
		set := slice("demo-svc", "10.244.0.5")
		set.Ports = []discoveryv1.EndpointPort{{Port: new(int32(8080))}}
		if _, err := w.kube.CoreV1().Services("default").Update(t.Context(), svc, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.start()
		eg := egress("demo-svc", v1.HostAll)
		eg.Spec.SourceIPBy, eg.Spec.Network = v1.SourceIPNetwork, "blue"
		w.update(eg)
		w.eventually("the rule for the pod of another node", func() bool {
			all, err := w.ipRules.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(r host.IPRule) bool {
				return r.Src == topology.HostPrefix(netip.MustParseAddr("10.244.0.5")) && r.SrcPort == 8080
			})
		})
	})
}

// TestUnlistedPods: EgressServices whose pods the API server does not list delay others only for
// a while, and get their rules as soon as it does.
func TestUnlistedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lists = make(chan struct{})
		w.start()
		const many = workers + 10
		for i := range many {
			name, addr := fmt.Sprintf("svc-%d", i), fmt.Sprintf("10.244.%d.%d", 10+i/200, 1+i%200)
			svc, set, eg := service(name, "6.6.6.6"), slice(name, addr), egress(name, "ovn-worker2")
			svc.Namespace, set.Namespace, eg.Namespace = unlisted, unlisted, unlisted
			for _, o := range []runtime.Object{svc, set, pod(unlisted, name, "ovn-worker", addr)} {
				if err := w.kube.Tracker().Add(o); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.egress.Tracker().Add(eg); err != nil {
				t.Fatal(err)
			}
			fakeapi.Settle() // a watch of the fake API buffers a hundred events
		}
		began := time.Now()
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the rules of another namespace", func() bool { return rules(w) == 4 })
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("the others were held up for %s", took)
		}
		<-time.After(time.Hour) // by now there is a long time between failing attempts
		began = time.Now()
		close(w.lists)
		w.eventually("all rules", func() bool { return rules(w) == 4+many })
		if took := time.Since(began); took > time.Second {
			t.Errorf("they had their rules %s after the list", took)
		}
	})
}
