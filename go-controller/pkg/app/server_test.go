package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// start serves cfg until the test ends and returns the address of each listener.
func start(t *testing.T, cfg config.Config, env *Env) []string {
	t.Helper()
	servers, err := listen(cfg, env)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var addresses []string
	for _, s := range servers {
		ended := make(chan error, 1)
		go func() { ended <- s.serve(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := eventually.Receive(t, "server", ended); err != nil {
				t.Errorf("serve: %v", err)
			}
		})
		addresses = append(addresses, s.listener.Addr().String())
	}
	return addresses
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestServer(t *testing.T) {
	env := testEnv(fakeapi.NewClientset())
	env.Metrics.Checks(env.Ready.Results)
	open := env.Ready.Gate("node")
	broken := errors.New("no answer")
	env.Ready.Add("northbound", func() error { return broken })
	addresses := start(t, config.Config{
		Metrics:    config.Metrics{BindAddress: "127.0.0.1:0"},
		Kubernetes: config.Kubernetes{HealthzBindAddress: "127.0.0.1:0"},
	}, env)
	full, health := "http://"+addresses[0], "http://"+addresses[1]

	for _, base := range []string{full, health} {
		if code, body := get(t, http.DefaultClient, base+"/healthz"); code != 200 || body != "ok\n" {
			t.Errorf("/healthz: %d %q", code, body)
		}
		if code, body := get(t, http.DefaultClient, base+"/readyz"); code != 503 || body != "node: starting\nnorthbound: no answer\nnot ready\n" {
			t.Errorf("/readyz: %d %q", code, body)
		}
	}
	open()
	broken = nil
	if code, body := get(t, http.DefaultClient, health+"/readyz"); code != 200 || body != "node: ok\nnorthbound: ok\nready\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}

	code, body := get(t, http.DefaultClient, full+"/metrics")
	for _, want := range []string{
		`ovnkube_build_info{commit="abc",go_version="go0",version="v1.2.3"} 1`,
		`ovnkube_readiness_check{check="node"} 1`,
		"ovnkube_leader 0", "go_goroutines ", "process_open_fds ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics (%d) has no %s", code, want)
		}
	}
	for _, url := range []string{health + "/metrics", full + "/debug/pprof/"} {
		if code, _ := get(t, http.DefaultClient, url); code != 404 {
			t.Errorf("%s: %d", url, code)
		}
	}
}

func TestNoAddressNoListener(t *testing.T) {
	if s, err := listen(config.Config{}, testEnv(nil)); err != nil || len(s) != 0 {
		t.Errorf("listen: %v, %v", s, err)
	}
}

// TestAddressInUse: the error names the option.
func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	used := l.Addr().String()
	env := testEnv(fakeapi.NewClientset())
	env.REST = &rest.Config{}
	all := func() error { _, err := listen(env.Config, env); return err }
	for option, tc := range map[string]struct {
		config config.Config
		listen func() error
	}{
		"--metrics-bind-address":     {config.Config{Metrics: config.Metrics{BindAddress: used}}, all},
		"--healthz-bind-address":     {config.Config{Metrics: config.Metrics{BindAddress: "127.0.0.1:0"}, Kubernetes: config.Kubernetes{HealthzBindAddress: used}}, all},
		"--egress-page-bind-address": {config.Config{Page: config.Page{BindAddress: used}}, func() error { _, err := pageServer(env); return err }},
		"--trace-bind-address":       {config.Config{Trace: config.Trace{BindAddress: used}}, func() error { _, err := (&node{env: env}).traces(nil, nil); return err }},
	} {
		env.Config = tc.config
		if err := tc.listen(); !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), option+": ") || !strings.Contains(err.Error(), used) {
			t.Errorf("%s: %v", option, err)
		}
	}
}

// TestServerTLS: metrics over TLS, with profiles; a renewed certificate is served without a
// restart.
func TestServerTLS(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Config{Metrics: config.Metrics{
		BindAddress: "127.0.0.1:0", EnablePprof: true,
		ServerKey: filepath.Join(dir, "tls.key"), ServerCert: filepath.Join(dir, "tls.crt"),
	}}
	pool := writeCertificate(t, cfg.Metrics)
	base := "https://" + start(t, cfg, testEnv(nil))[0]
	for range 2 {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		if code, body := get(t, client, base+"/debug/pprof/cmdline"); code != 200 || body == "" {
			t.Errorf("profile: %d %q", code, body)
		}
		pool = writeCertificate(t, cfg.Metrics)
	}
}

// writeCertificate makes a self-signed certificate for 127.0.0.1.
func writeCertificate(t *testing.T, m config.Metrics) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		m.ServerCert: {Type: "CERTIFICATE", Bytes: cert}, m.ServerKey: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	return pool
}
