package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain/reader"
	routefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned/fake"
	servicefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	ipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestPageOfMaster: the API server decides who sees the page; nobody does without a token, with an
// unknown one, without permission, or while the API server does not answer.
func TestPageOfMaster(t *testing.T) {
	kube := fakeapi.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}})
	var down error
	kube.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if name, ok := strings.CutPrefix(review.Spec.Token, "token of "); ok {
			review.Status.Authenticated, review.Status.User.Username = true, name
		}
		return true, review, down
	})
	kube.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		what := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == "reader" && what != nil && *what == authorizationv1.NonResourceAttributes{Path: "/egress", Verb: "get"}
		return true, review, nil
	})
	s := pageHandler(testEnv(kube), reader.Clients{Kube: kube, IPs: ipfake.NewSimpleClientset(), Services: servicefake.NewSimpleClientset(), Routes: routefake.NewSimpleClientset()})
	for _, tc := range []struct {
		name, authorization string
		down                error
		code                int
		want                string
	}{
		{"no token", "", nil, 401, "send a token of the API server"},
		{"another scheme", "Basic cmVhZGVyOg==", nil, 401, "send a token of the API server"},
		{"an unknown token", "Bearer nothing", nil, 401, "the API server does not know the token"},
		{"no right", "Bearer token of stranger", nil, 403, "stranger may not get /egress"},
		{"no answer", "Bearer token of somebody", errors.New("connection refused"), 500, "the API server does not answer"},
		{"a reader", "Bearer token of reader", nil, 200, `"node":"worker-1"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			down = tc.down
			r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/api/v1/status", nil)
			if tc.authorization != "" {
				r.Header.Set("Authorization", tc.authorization)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) || (tc.code != 200 && strings.Contains(w.Body.String(), "worker-1")) {
				t.Errorf("status %d, want %d: %s, want %q in it", w.Code, tc.code, w.Body, tc.want)
			}
		})
	}
	for _, a := range kube.Actions() {
		if get, ok := a.(clienttesting.GetAction); ok && a.Matches("get", "configmaps") && get.GetName() != reachability.ConfigMap {
			t.Errorf("the master asks for its own settings: ConfigMap %s", get.GetName())
		}
	}
}

func TestNoPage(t *testing.T) {
	if s, err := pageServer(testEnv(fakeapi.NewClientset())); s != nil || err != nil {
		t.Errorf("it is served: %v, %v", s, err)
	}
}
