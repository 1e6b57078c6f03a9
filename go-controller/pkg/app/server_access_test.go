package app

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// reviewing is an API server that knows the token "reader", whose user may get /metrics, and the token "other".
func reviewing() *fake.Clientset {
	kube := fake.NewClientset()
	kube.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		review.Status.Authenticated = review.Spec.Token == "reader" || review.Spec.Token == "other"
		review.Status.User.Username = review.Spec.Token
		return true, review, nil
	})
	kube.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		of := review.Spec.NonResourceAttributes
		// Users may get /readyz of the API server by default.
		review.Status.Allowed = of != nil && of.Verb == "get" && (of.Path == "/readyz" || of.Path == "/metrics" && review.Spec.User == "reader")
		return true, review, nil
	})
	return kube
}

// TestMetricsAccess: where others than the host's own users can connect, everybody may ask for the health of the process,
// as a kubelet does, and only users with permission for the rest.
func TestMetricsAccess(t *testing.T) {
	for _, address := range []string{"192.0.2.1:9409", "[192.0.2.1]:9409", ":9409", "0.0.0.0:9409", "[::]:9409", "[fc00::3]:9410"} {
		handler := metricsHandler(testEnv(reviewing()), config.Metrics{BindAddress: address, EnablePprof: true})
		for _, c := range []struct {
			path, token string
			want        int
		}{
			{"/healthz", "", 200}, {"/readyz", "", 200},
			{"/readyz?verbose", "", 401}, {"/readyz?verbose=1", "", 401}, {"/readyz?verbose", "other", 403}, {"/readyz?verbose", "reader", 200},
			{"/metrics", "", 401}, {"/metrics", "unknown", 401}, {"/metrics", "other", 403}, {"/metrics", "reader", 200},
			{"/debug/pprof/", "", 401}, {"/debug/pprof/", "reader", 403}, {"/debug/pprof/heap", "", 401}, {"/debug/pprof/heap", "reader", 403},
			{"/debug/pprof/cmdline", "", 401}, {"/debug/pprof/profile", "", 401}, {"/debug/pprof/symbol", "", 401}, {"/debug/pprof/trace", "", 401},
		} {
			r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, c.path, nil)
			if c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("%s%s with token %q: status %d, want %d", address, c.path, c.token, w.Code, c.want)
			}
		}
	}
}

// TestMetricsOpen: users of the host may see everything, and others if the administrator has said so.
func TestMetricsOpen(t *testing.T) {
	for _, m := range []config.Metrics{
		{BindAddress: "127.0.0.1:9409"}, {BindAddress: "[::1]:9409"}, {BindAddress: "localhost:9409"}, {BindAddress: "0.0.0.0:9409", Insecure: true},
	} {
		m.EnablePprof = true
		handler := metricsHandler(testEnv(reviewing()), m)
		for _, path := range []string{"/healthz", "/readyz?verbose", "/metrics", "/debug/pprof/cmdline"} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil))
			if w.Code != 200 {
				t.Errorf("%s%s: status %d", m.BindAddress, path, w.Code)
			}
		}
		if cert, err := metricsCertificate(m); cert != nil || err != nil {
			t.Errorf("%s: a certificate: %v", m.BindAddress, err)
		}
	}
}

// TestVerboseHealth: the listener for health checks, which has neither TLS nor permissions, names no objects.
func TestVerboseHealth(t *testing.T) {
	for path, want := range map[string]int{"/readyz": 200, "/readyz?verbose": 404} {
		w := httptest.NewRecorder()
		healthHandler(testEnv(nil).Ready, nil).ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
}

// TestMetricsCertificate: a server that others can reach uses TLS from the start, and presents its certificate as soon as
// that exists. A broken one does not keep the kubelet from asking for its health.
func TestMetricsCertificate(t *testing.T) {
	dir := t.TempDir()
	m := config.Metrics{BindAddress: "0.0.0.0:9409", ServerKey: filepath.Join(dir, "tls.key"), ServerCert: filepath.Join(dir, "tls.crt")}
	cert, err := metricsCertificate(m)
	if err != nil {
		t.Fatal(err)
	}
	env := testEnv(reviewing())
	s, err := newServer("--metrics-bind-address", "127.0.0.1:0", metricsHandler(env, m), cert)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := eventually.Receive(t, "server", ended); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	client := func(c *tls.Config) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
	}
	base := "https://" + s.listener.Addr().String()
	if code, _ := get(t, client(&tls.Config{InsecureSkipVerify: true}), base+"/readyz"); code != 200 {
		t.Errorf("without a certificate: status %d", code)
	}
	if code, body := get(t, http.DefaultClient, strings.Replace(base, "https", "http", 1)+"/metrics"); code != 400 || strings.Contains(body, "ovnkube_") {
		t.Errorf("without TLS: status %d: %s", code, body)
	}
	for _, content := range []string{"", "no certificate"} {
		for _, file := range []string{m.ServerKey, m.ServerCert} {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if code, _ := get(t, client(&tls.Config{InsecureSkipVerify: true}), base+"/healthz"); code != 200 {
			t.Errorf("with a certificate %q: status %d", content, code)
		}
	}
	pool := writeCertificate(t, m)
	if code, _ := get(t, client(&tls.Config{RootCAs: pool}), base+"/metrics"); code != 401 {
		t.Errorf("without a token: status %d", code)
	}
}
