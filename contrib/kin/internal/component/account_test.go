package component

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/pki"
)

// TestAccount: the daemon's kubeconfig has the token that the API server issued for
// its account, bound to its node, once both exist, and does not have the administrator's
// certificate.
func TestAccount(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/ovn-kubernetes/serviceaccounts/ovnkube-node/token" || r.Method != http.MethodPost {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		var request struct {
			Spec struct {
				BoundObjectRef map[string]string
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		if ref := request.Spec.BoundObjectRef; ref["kind"] != "Node" || ref["name"] != "ovn-worker" {
			t.Errorf("bound to %v", ref)
		}
		if asked++; asked < 3 { // the account and the node do not exist at once
			http.Error(w, "not found", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"status":{"token":"abc"}}`))
	}))
	defer server.Close()
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Subject{Name: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	var config kubeconfig
	if err := yaml.Unmarshal(ca.Kubeconfig("admin", server.URL, pair), &config); err != nil {
		t.Fatal(err)
	}
	config.Clusters[0].Cluster.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	admin, file := filepath.Join(t.TempDir(), "admin.conf"), filepath.Join(t.TempDir(), "ovnkube-node.conf")
	if err := os.WriteFile(admin, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RunHook(t.Context(), hookAccount, []string{"ovnkube-node", "ovn-worker", admin, file}); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(written), "token: abc") || strings.Contains(string(written), "client-") || !strings.Contains(string(written), server.URL) {
		t.Errorf("kubeconfig:\n%s", written)
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}
