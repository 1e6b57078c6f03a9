package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestLostAuthority: an authority whose Secret was deleted is not replaced while others have what it signed, or
// trust it. It can be restored, and replaced once nobody depends on it.
func TestLostAuthority(t *testing.T) {
	for name, dependents := range map[string][]string{
		nodes:        {"ovn-sb", "ovnkube-master"},
		controlPlane: {"ovn-nb", "ovn-sb-masters", "ovnkube-master"},
		metrics:      {"ovnkube-metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			events := record.NewFakeRecorder(10)
			k := Issuer{Client: server(agent("n1")), Namespace: namespace, Now: (&clock{}).Now, Events: events}
			if err := k.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			client := k.Client.CoreV1().Secrets(namespace)
			backup, err := client.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			remove := func(secret string) {
				t.Helper()
				if err := client.Delete(t.Context(), secret, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			before := secretsOf(t, k)
			remove(name)
			refused := func(by ...string) {
				t.Helper()
				err := k.Ensure(t.Context())
				if err == nil || !strings.Contains(err.Error(), "secret "+name) || !strings.Contains(err.Error(), strings.Join(by, ", ")) {
					t.Errorf("lost authority of %v: %v", by, err)
				}
				select {
				case e := <-events.Events:
					if !strings.HasPrefix(e, "Warning AuthorityLost ") || !strings.Contains(e, strings.Join(by, ", ")) {
						t.Errorf("Event %s", e)
					}
				default:
					t.Error("no Event")
				}
				for len(events.Events) > 0 { // of other certificates that need the authority
					<-events.Events
				}
				if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("the authority was replaced: %v", err)
				}
			}
			refused(dependents...)
			if request, err := pki.Dir(t.TempDir()).Request(Name, "n1"); err != nil {
				t.Fatal(err)
			} else if _, err := k.answer(t.Context(), request, "n1"); (err == nil) != (name == metrics) {
				t.Errorf("a request of a node: %v", err)
			}
			for len(events.Events) > 0 {
				<-events.Events
			}

			backup.ResourceVersion = ""
			if _, err := client.Create(t.Context(), backup, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := k.Ensure(t.Context()); err != nil {
				t.Fatalf("after the authority was restored: %v", err)
			}
			if after := secretsOf(t, k); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("secrets %v after the authority was restored", slices.Sorted(maps.Keys(after)))
			}

			remove(name)
			for i, d := range dependents {
				refused(dependents[i:]...)
				remove(d)
			}
			if err := k.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			after := secretsOf(t, k)
			for secret, data := range after {
				depends := secret == name || slices.Contains(dependents, secret)
				if same := string(data[keyCert]) == string(before[secret][keyCert]); same == depends {
					t.Errorf("%s: has the former certificate: %t", secret, same)
				}
			}
			if len(after) != len(before) {
				t.Errorf("secrets %v", slices.Sorted(maps.Keys(after)))
			}
		})
	}
}

// TestLostAtOnce: an issuer that runs notices at once that a Secret was deleted. It reports a lost authority, makes a
// lost certificate again, and needs no restart after the authority was restored.
func TestLostAtOnce(t *testing.T) {
	kube := server(agent("n1"))
	watches := make(chan struct{}, 100)
	kube.PrependWatchReactor("secrets", func(a k8stesting.Action) (bool, watch.Interface, error) {
		w, err := kube.Tracker().Watch(a.GetResource(), a.GetNamespace())
		watches <- struct{}{}
		return true, w, err
	})
	events := record.NewFakeRecorder(1000)
	k := Issuer{Client: kube, Namespace: namespace, Now: (&clock{}).Now, Events: events}
	run(t, k)
	for range len(entries) + 3 {
		eventually.Receive(t, "a watch of a Secret", watches)
	}
	client := kube.CoreV1().Secrets(namespace)
	complete := func() {
		t.Helper()
		eventually.Succeeds(t, "all Secrets to be there", func() error {
			if all := secretsOf(t, k); len(all) != len(entries)+3 {
				return fmt.Errorf("secrets %v", slices.Sorted(maps.Keys(all)))
			}
			return nil
		})
	}
	remove := func(name string) {
		t.Helper()
		if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	complete()
	remove("ovnkube-master")
	complete()

	backup, err := client.Get(t.Context(), nodes, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove(nodes)
	if e := eventually.Receive(t, "an Event", events.Events); !strings.HasPrefix(e, "Warning AuthorityLost ") {
		t.Errorf("Event %s", e)
	}
	remove("ovnkube-master")
	backup.ResourceVersion = ""
	if _, err := client.Create(t.Context(), backup, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	complete()
}

// TestLostElsewhere: an issuer that starts when the authority of metrics is lost signs the requests of nodes.
func TestLostElsewhere(t *testing.T) {
	k := Issuer{Client: server(agent("n1")), Namespace: namespace, Now: (&clock{}).Now, Events: record.NewFakeRecorder(1000)}
	if err := k.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.Client.CoreV1().Secrets(namespace).Delete(t.Context(), metrics, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, k)
	node := Node{Client: k.Client, Name: "n1", Dir: pki.Dir(t.TempDir()), Now: k.Now}
	if err := node.Ensure(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRequestsWhileLost: while an authority is lost, a node has one request, however often it tries, and that is not
// approved: the API server would keep it forever. It is answered once the authority was restored.
func TestRequestsWhileLost(t *testing.T) {
	kube := server(agent("n1"))
	k := Issuer{Client: kube, Namespace: namespace, Now: (&clock{}).Now, Events: record.NewFakeRecorder(1000)}
	if err := k.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	secrets, requests := kube.CoreV1().Secrets(namespace), kube.CertificatesV1().CertificateSigningRequests()
	backup, err := secrets.Get(t.Context(), nodes, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := secrets.Delete(t.Context(), nodes, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	node := &Node{Client: kube, Name: "n1", Dir: pki.Dir(t.TempDir()), Now: k.Now}
	attempt := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*poll)
		defer cancel()
		return node.Ensure(ctx)
	}
	lister := k.requests()
	for range 3 {
		if err := attempt(); err == nil || !strings.Contains(err.Error(), "not answered") {
			t.Fatalf("an attempt: %v", err)
		}
		all, err := requests.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(all.Items) != 1 {
			t.Fatalf("%d requests", len(all.Items))
		}
		if err := lister.shared.Certificates().V1().CertificateSigningRequests().Informer().GetIndexer().Add(&all.Items[0]); err != nil {
			t.Fatal(err)
		}
		if err := lister.reconcile(t.Context(), all.Items[0].Name); err == nil || !strings.Contains(err.Error(), nodes) {
			t.Errorf("it is answered: %v", err)
		}
		if all, err = requests.List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items[0].Status.Conditions) > 0 {
			t.Errorf("conditions %+v, %v", all.Items[0].Status.Conditions, err)
		}
	}
	backup.ResourceVersion = ""
	if _, err := secrets.Create(t.Context(), backup, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, k)
	if err := node.Ensure(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRequestGone: a node makes another request if its last one was deleted without an answer.
func TestRequestGone(t *testing.T) {
	kube := server(agent("n1"))
	k := Issuer{Client: kube, Namespace: namespace, Now: (&clock{}).Now}
	node := &Node{Client: kube, Name: "n1", Dir: pki.Dir(t.TempDir()), Now: k.Now}
	ctx, cancel := context.WithTimeout(t.Context(), 2*poll)
	defer cancel()
	if err := node.Ensure(ctx); err == nil {
		t.Fatal("nobody answers, and there is a certificate")
	}
	requests := kube.CertificatesV1().CertificateSigningRequests()
	if err := requests.Delete(t.Context(), node.open, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := node.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "is gone without an answer") {
		t.Errorf("after it was deleted: %v", err)
	}
	run(t, k)
	if err := node.Ensure(t.Context()); err != nil {
		t.Error(err)
	}
}
