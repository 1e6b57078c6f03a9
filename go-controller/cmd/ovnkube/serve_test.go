package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain/reader"
	routefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned/fake"
	servicefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	ipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// served is a served page.
type served struct{ address, token string }

// serveEgress runs "ovnkube egress serve" until the test ends.
func serveEgress(t *testing.T, kube *fake.Clientset) served {
	t.Helper()
	reading, writing := io.Pipe()
	e := &egress{out: writing, now: func() time.Time { return egressTime }, connect: func(string, string) (reader.Clients, error) {
		return reader.Clients{Kube: kube, IPs: ipfake.NewSimpleClientset(anEgressIP()), Services: servicefake.NewSimpleClientset(), Routes: routefake.NewSimpleClientset()}, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		ended <- e.run(ctx, []string{"serve", "--listen=127.0.0.1:0"}, &errs)
		writing.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if status := <-ended; status != 0 {
			t.Errorf("exit status %d: %s", status, &errs)
		}
	})
	line, err := bufio.NewReader(reading).ReadString('\n')
	parts := regexp.MustCompile(`^Serving on (http://127\.0\.0\.1:\d+)/#token=(\w+)\n$`).FindStringSubmatch(line)
	if parts == nil {
		t.Fatalf("printed %q: %v", line, err)
	}
	return served{parts[1], parts[2]}
}

func (s served) get(t *testing.T, path string, change func(*http.Request)) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	change(r)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestServe(t *testing.T) {
	events := []runtime.Object{
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prod.1"}, Source: corev1.EventSource{Component: "ovnkube"},
			InvolvedObject: corev1.ObjectReference{Kind: "EgressIP", Name: "prod"}, Reason: "Moved", Message: "it moves", LastTimestamp: metav1.NewTime(egressTime)},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prod.2"}, Source: corev1.EventSource{Component: "somebody"},
			InvolvedObject: corev1.ObjectReference{Kind: "EgressIP", Name: "prod"}, Reason: "Lie", LastTimestamp: metav1.NewTime(egressTime)},
	}
	kube := fakeapi.NewClientset(append(egressCluster(), events...)...)
	s := serveEgress(t, kube)
	mine := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.token) }
	for _, tc := range []struct {
		name, path string
		change     func(*http.Request)
		code       int
		want       string
	}{
		{"the page", "/", func(*http.Request) {}, 200, "Egress map"},
		{"the status", "/api/v1/status", mine, 200, `"object":"EgressIP/prod"`},
		{"the timeline", "/api/v1/timeline", mine, 200, `"reason":"Moved"`},
		{"no token", "/api/v1/status", func(*http.Request) {}, 401, "open the address that the command has printed"},
		{"another token", "/api/v1/status", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.token[1:]) }, 401, ""},
		{"another host name", "/", func(r *http.Request) { r.Host = "rebound.example" }, 421, ""},
	} {
		if code, body := s.get(t, tc.path, tc.change); code != tc.code || !strings.Contains(body, tc.want) || strings.Contains(body, "Lie") {
			t.Errorf("%s: status %d, want %d: %s", tc.name, code, tc.code, body)
		}
	}
	for _, a := range kube.Actions() {
		if verb := a.GetVerb(); verb != "list" && verb != "get" {
			t.Errorf("the command does a %s of %s", verb, a.GetResource().Resource)
		}
	}
}

func TestServeWithoutRights(t *testing.T) {
	kube := fakeapi.NewClientset(egressCluster()...)
	forbid := func(resource string) {
		kube.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
		})
	}
	forbid("events")
	s := serveEgress(t, kube)
	mine := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.token) }
	if code, body := s.get(t, "/api/v1/timeline", mine); code != 200 || !strings.Contains(body, "timeline: you may not list events") {
		t.Errorf("without events: status %d: %s", code, body)
	}
	forbid("pods")
	s = serveEgress(t, kube)
	mine = func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.token) }
	if code, body := s.get(t, "/api/v1/status", mine); code != 403 || !strings.Contains(body, "you may not list pods: have the ClusterRole egress-reader bound to you") {
		t.Errorf("without pods: status %d: %s", code, body)
	}
}

func TestServeIsAskedWrongly(t *testing.T) {
	for _, tc := range []struct {
		arg, want string
	}{
		{"--listen=0.0.0.0:0", "no loopback address"}, {"--listen=192.0.2.1:80", "no loopback address"}, {"--listen=localhost:80", "no loopback address"},
		{"--listen=[::]:0", "no loopback address"}, {"--interval=1ms", "too short"}, {"page", "unexpected argument"}, {"--output=json", "unknown flag"},
	} {
		if status, _, errs := askEgress(t, fakeapi.NewClientset(), nil, "serve", tc.arg); status != 2 || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit status %d: %s", tc.arg, status, errs)
		}
	}
}
