package page

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	masterPort = 9414
	viewer     = "egress-viewer"
)

// kubectl runs kubectl and returns what it printed.
func (p *pageTest) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := lab.Run(t.Context(), append(p.Kubectl(), args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// master makes the masters serve the page, as docs/page.md describes, and opens it with tokens of
// accounts that may see it and of accounts that may not.
func (p *pageTest) master(t *testing.T) {
	server := p.serveOnMaster(t)
	p.kubectl(t, "create", "serviceaccount", viewer)
	p.kubectl(t, "create", "clusterrolebinding", viewer, "--clusterrole=egress-reader", "--serviceaccount="+lab.Namespace+":"+viewer)
	viewing, stranger := p.kubectl(t, "create", "token", viewer), p.kubectl(t, "create", "token", "default")
	for _, ask := range []struct {
		what, token string
		code        int
		says        string
	}{
		{"no token", "", http.StatusUnauthorized, "send a token of the API server"},
		{"what is no token", "nonsense", http.StatusUnauthorized, "the API server does not know the token"},
		{"a token that was changed", viewing[:len(viewing)-8] + "AAAAAAAA", http.StatusUnauthorized, "the API server does not know the token"},
		{"somebody without rights", stranger, http.StatusForbidden, "system:serviceaccount:" + lab.Namespace + ":default"},
		{"who may see it", viewing, http.StatusOK, "EgressStatus"},
	} {
		for _, path := range []string{"status", "objects", "timeline", "explain/egressip?name=" + name} {
			code, text := server.get(t, "/api/v1/"+path, ask.token)
			if code != ask.code || path == "status" && !strings.Contains(text, ask.says) {
				t.Errorf("%s of %s: %d, want %d with %q: %s", path, ask.what, code, ask.code, ask.says, text)
			}
		}
	}
	t.Run("Browser", func(t *testing.T) {
		b := open(t, server.url+"/", chromedp.IgnoreCertErrors) // the system does not know the authority; get verifies
		enter := func(token string) {
			b.do(t, chromedp.Focus("#token", chromedp.ByQuery), chromedp.KeyEvent(token+kb.Enter))
		}
		b.until(t, "that a token is needed", func() error {
			return b.shows("#login", "A token is needed", "send a token of the API server")
		})
		enter("nonsense")
		b.until(t, "that the token is not known", func() error { return b.shows("#login", "does not know the token") })
		enter(viewing)
		b.until(t, "objects, and what runs", func() error {
			return b.shows("#content", "EgressIP/"+name, address.String(), "Versions", "ovnkube-master", "ovnkube-node")
		})
		b.names(t)
		b.screenshot(t, "master")
	})
	p.kubectl(t, "delete", "clusterrolebinding", viewer)
	err := lab.Until(t.Context(), patience, "the right to be gone", func(context.Context) error {
		if code, text := server.get(t, "/api/v1/status", viewing); code != http.StatusForbidden {
			return fmt.Errorf("%d: %s", code, text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// masterServer is the page of a master, served with the master's certificate.
type masterServer struct {
	url    string
	client *http.Client
}

// serveOnMaster gives the masters a certificate and makes them serve the page.
func (p *pageTest) serveOnMaster(t *testing.T) masterServer {
	t.Helper()
	ctx := t.Context()
	addresses, err := p.NodeAddresses(ctx, lab.ControlPlane)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.NewAuthority("page", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	loopback := netip.MustParseAddr("127.0.0.1") // where the connection begins
	text, _, err := authority.Ensure(pki.Text{}, pki.Subject{Name: "page", Addresses: []netip.Addr{addresses[0], loopback}, Server: true}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key, cert := filepath.Join(dir, "tls.key"), filepath.Join(dir, "tls.crt")
	for file, content := range map[string][]byte{key: text.Key, cert: text.Cert} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const namespace = "--namespace=ovn-kubernetes"
	p.kubectl(t, namespace, "create", "secret", "tls", "ovnkube-page", "--cert="+cert, "--key="+key)
	overlay := p.withPage(t)
	for range 2 { // as with any later change of the overlay
		p.kubectl(t, "apply", "--server-side", "--force-conflicts", "--kustomize="+overlay)
	}
	p.kubectl(t, namespace, "rollout", "status", "deployment", "ovnkube-master", "--timeout=3m")
	forward, err := p.Forward(ctx, lab.ControlPlane, netip.AddrPortFrom(addresses[0], masterPort))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(authority.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return masterServer{"https://" + forward, &http.Client{Transport: transport}}
}

// withPage returns an overlay that adds the page to what is installed.
func (p *pageTest) withPage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	relative := func(path string) string { // kustomize refuses absolute paths
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		if path, err = filepath.Rel(dir, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{relative(p.Manifests())}, "components": []string{relative("../../dist/components/page")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// get requests a path with a token, and returns the status and the text of the response.
func (s masterServer) get(t *testing.T, path, token string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text json.RawMessage
	if err := json.NewDecoder(response.Body).Decode(&text); err != nil {
		t.Fatalf("%s: %s: %v", path, response.Status, err)
	}
	return response.StatusCode, string(text)
}
