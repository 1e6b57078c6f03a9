package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

const namespace = "ovn-kubernetes"

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clock is the time of an issuer and its nodes.
type clock struct{ after atomic.Int64 }

func (c *clock) Now() time.Time { return start.Add(time.Duration(c.after.Load())) }

func (c *clock) set(days int) { c.after.Store(int64(days) * int64(24*time.Hour)) }

// server is an API server that writes into a request who made it, as a real one does.
func server(who certificatesv1.CertificateSigningRequestSpec) *fake.Clientset {
	kube := fakeapi.NewClientset()
	n := 0
	kube.PrependReactor("create", "certificatesigningrequests", func(action k8stesting.Action) (bool, runtime.Object, error) {
		csr := action.(k8stesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
		n++
		csr.Name = fmt.Sprintf("%s%d", csr.GenerateName, n)
		csr.Spec.Username, csr.Spec.Extra = who.Username, who.Extra
		return false, nil, nil
	})
	return kube
}

func agent(node string) certificatesv1.CertificateSigningRequestSpec {
	return certificatesv1.CertificateSigningRequestSpec{
		Username: "system:serviceaccount:" + namespace + ":ovnkube-node",
		Extra:    map[string]certificatesv1.ExtraValue{extraNode: {node}},
	}
}

// run runs an issuer until the test ends.
func run(t *testing.T, k Issuer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func secretsOf(t *testing.T, k Issuer) map[string]map[string][]byte {
	t.Helper()
	all, err := k.Client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string][]byte{}
	for _, s := range all.Items {
		out[s.Name] = s.Data
	}
	return out
}

func certificate(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("no PEM: %q", text)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// accepts reports whether a peer with the given trusted certificates accepts a certificate.
func accepts(trusted []byte, cert *x509.Certificate, use x509.ExtKeyUsage, name string) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: start, DNSName: name, KeyUsages: []x509.ExtKeyUsage{use}})
	return err == nil
}

// TestWhoIsLetIn: what gives access to one database gives access to no other, and only databases are accepted as
// databases.
func TestWhoIsLetIn(t *testing.T) {
	c := &clock{}
	k := Issuer{Client: server(agent("n1")), Namespace: namespace, Now: c.Now}
	run(t, k)
	node := Node{Client: k.Client, Name: "n1", Dir: pki.Dir(t.TempDir()), Now: c.Now}
	if err := node.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	secrets := secretsOf(t, k)
	if len(secrets) != 8 {
		t.Fatalf("%d secrets", len(secrets))
	}
	nodeCert, nodeTrusts := read(t, node.Dir, "ovn-cert.pem"), read(t, node.Dir, "cacert.pem")
	if cn := certificate(t, nodeCert).Subject.CommonName; cn != "n1" {
		t.Errorf("common name %q", cn)
	}
	if _, err := tls.X509KeyPair(nodeCert, read(t, node.Dir, "ovn-privkey.pem")); err != nil {
		t.Error(err)
	}
	client, serving := x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	master, scraped := secrets["ovnkube-master"], secrets["ovnkube-metrics"]
	for _, c := range []struct {
		what    string
		trusted []byte
		cert    []byte
		use     x509.ExtKeyUsage
		name    string
		want    bool
	}{
		{"master to northbound", secrets["ovn-nb"][keyCA], master[keyCert], client, "", true},
		{"master to southbound", secrets["ovn-sb-masters"][keyCA], master[keyCert], client, "", true},
		{"node to southbound", secrets["ovn-sb"][keyCA], nodeCert, client, "", true},
		{"node to northbound", secrets["ovn-nb"][keyCA], nodeCert, client, "", false},
		{"node to the masters' southbound", secrets["ovn-sb-masters"][keyCA], nodeCert, client, "", false},
		{"master to the nodes' southbound", secrets["ovn-sb"][keyCA], master[keyCert], client, "", false},
		{"northbound for a master", master[keyCA], secrets["ovn-nb"][keyCert], serving, "nb", true},
		{"southbound for a master", master[keyCA], secrets["ovn-sb-masters"][keyCert], serving, "sb", true},
		{"southbound as northbound", master[keyCA], secrets["ovn-sb-masters"][keyCert], serving, "nb", false},
		{"southbound for a node", nodeTrusts, secrets["ovn-sb"][keyCert], serving, "sb", true},
		{"a node as southbound", nodeTrusts, nodeCert, serving, "", false},
		{"a node as northbound", master[keyCA], nodeCert, serving, "", false},
		{"a master as southbound", nodeTrusts, master[keyCert], serving, "", false},
		{"a master asks for health", nodeTrusts, master[keyCert], client, "", true},
		{"metrics for Prometheus", scraped[keyCA], scraped[keyCert], serving, "ovnkube-metrics", true},
		{"metrics as a database of masters", master[keyCA], scraped[keyCert], serving, "", false},
		{"metrics as a database of nodes", nodeTrusts, scraped[keyCert], serving, "", false},
		{"metrics to northbound", secrets["ovn-nb"][keyCA], scraped[keyCert], client, "", false},
		{"a database as metrics", scraped[keyCA], secrets["ovn-nb"][keyCert], serving, "", false},
		{"a node answers about its health", master[keyCA], nodeCert, x509.ExtKeyUsageAny, "", true},
	} {
		if got := accepts(c.trusted, certificate(t, c.cert), c.use, c.name); got != c.want {
			t.Errorf("%s: accepted %t", c.what, got)
		}
	}
}

func read(t *testing.T, dir pki.Dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(string(dir), name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestRefused: who requests a certificate, and from which node, is what the API server says.
func TestRefused(t *testing.T) {
	other := agent("n1")
	other.Username = "system:serviceaccount:default:ovnkube-node"
	nowhere := agent("n1")
	nowhere.Extra = nil
	for name, c := range map[string]struct {
		who  certificatesv1.CertificateSigningRequestSpec
		why  string
		node string
	}{
		"another account": {other, "signed for system:serviceaccount:ovn-kubernetes:ovnkube-node only", "n1"},
		"no node":         {nowhere, "names no node", "n1"},
		"another node":    {agent("n2"), `for "CN=n1", not for "CN=n2"`, "n1"},
		"a database":      {agent("n2"), `for "CN=sb", not for "CN=n2"`, "sb"},
		"a long name":     {agent(strings.Repeat("n", 65)), "1 to 64 characters", strings.Repeat("n", 65)},
	} {
		t.Run(name, func(t *testing.T) {
			k := Issuer{Client: server(c.who), Namespace: namespace, Now: (&clock{}).Now}
			run(t, k)
			node := Node{Client: k.Client, Name: c.node, Dir: pki.Dir(t.TempDir()), Now: k.Now}
			if err := node.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %s", err, c.why)
			}
			if _, err := node.Dir.Certificate(Name, c.node); err == nil {
				t.Error("there is a certificate")
			}
		})
	}
}

// TestApprovedByOthers: requests that somebody else has approved are not signed, and requests to other signers are
// left alone.
func TestApprovedByOthers(t *testing.T) {
	k := Issuer{Client: server(agent("n2")), Namespace: namespace, Now: (&clock{}).Now}
	request, err := pki.Dir(t.TempDir()).Request(Name, "n1")
	if err != nil {
		t.Fatal(err)
	}
	client := k.Client.CertificatesV1().CertificateSigningRequests()
	submit := func(signer string) string {
		csr, err := client.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "x"},
			Spec:       certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: signer, Usages: usages},
			Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{
				{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return csr.Name
	}
	foreign, ours := submit("example.com/other"), submit(SignerName)
	run(t, k)
	eventually.Succeeds(t, "the request to fail", func() error {
		csr, err := client.Get(t.Context(), ours, metav1.GetOptions{})
		if err == nil && (!has(csr, certificatesv1.CertificateFailed) || csr.Status.Certificate != nil) {
			err = fmt.Errorf("status %+v", csr.Status)
		}
		return err
	})
	if csr, err := client.Get(t.Context(), foreign, metav1.GetOptions{}); err != nil || len(csr.Status.Conditions) != 1 || csr.Status.Certificate != nil {
		t.Errorf("request to another signer: %+v, %v", csr.Status, err)
	}
}

// TestRenewal: a certificate with less than a third of its time left is renewed with its key; nothing else is
// written.
func TestRenewal(t *testing.T) {
	c := &clock{}
	k := Issuer{Client: server(agent("n1")), Namespace: namespace, Now: c.Now}
	if err := k.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := secretsOf(t, k)
	for _, s := range []struct {
		days    int
		renewed bool
	}{{0, false}, {59, false}, {61, true}, {62, false}} {
		before := secretsOf(t, k)
		c.set(s.days)
		if err := k.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, data := range secretsOf(t, k) {
			old := before[name]
			authority := strings.HasPrefix(name, "ovn-authority-")
			if changed := !bytes.Equal(data[keyCert], old[keyCert]); changed != (s.renewed && !authority) {
				t.Errorf("day %d: %s changed: %t", s.days, name, changed)
			}
			if !bytes.Equal(data[keyKey], first[name][keyKey]) || !bytes.Equal(data[keyCA], first[name][keyCA]) {
				t.Errorf("day %d: %s has another key or trusts others", s.days, name)
			}
			if left := certificate(t, data[keyCert]).NotAfter.Sub(c.Now()); left < lifetime/3 {
				t.Errorf("day %d: %s has %s left", s.days, name, left)
			}
		}
	}
}

// TestNodeRenewal: a node requests another certificate before its certificate ends, with the same key, and a new
// one if what it has is useless: the certificate, its key or the authorities that it trusts.
func TestNodeRenewal(t *testing.T) {
	c := &clock{}
	kube := server(agent("n1"))
	k := Issuer{Client: kube, Namespace: namespace, Now: c.Now}
	run(t, k)
	node := Node{Client: kube, Name: "n1", Dir: pki.Dir(t.TempDir()), Now: c.Now}
	requests := func() (n int) {
		for _, a := range kube.Actions() {
			if a.Matches("create", "certificatesigningrequests") {
				n++
			}
		}
		return n
	}
	ensure := func(want int) {
		t.Helper()
		if err := node.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := requests(); got != want {
			t.Errorf("%d requests, want %d", got, want)
		}
	}
	path := func(file string) string { return filepath.Join(string(node.Dir), file) }
	ensure(1)
	key := read(t, node.Dir, "ovn-privkey.pem")
	ensure(1)
	c.set(61)
	ensure(2)
	if !bytes.Equal(key, read(t, node.Dir, "ovn-privkey.pem")) {
		t.Error("another key")
	}
	c.set(0) // the time that accepts assumes
	for i, damage := range []func() error{
		func() error { return os.WriteFile(path("ovn-cert.pem"), nil, 0o644) },
		func() error { return os.Remove(path("cacert.pem")) },
		func() error { return os.WriteFile(path("cacert.pem"), []byte("text"), 0o644) },
		func() error { return os.WriteFile(path("cacert.pem"), secretsOf(t, k)[metrics][keyCert], 0o644) },
		func() error { return os.WriteFile(path("ovn-privkey.pem"), []byte("text"), 0o600) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		ensure(3 + i)
		ensure(3 + i)
		if _, err := tls.X509KeyPair(read(t, node.Dir, "ovn-cert.pem"), read(t, node.Dir, "ovn-privkey.pem")); err != nil {
			t.Errorf("damage %d: %v", i, err)
		}
		if !accepts(secretsOf(t, k)["ovn-sb"][keyCA], certificate(t, read(t, node.Dir, "ovn-cert.pem")), x509.ExtKeyUsageClientAuth, "") {
			t.Errorf("damage %d: the database does not accept the certificate", i)
		}
		if !accepts(read(t, node.Dir, "cacert.pem"), certificate(t, secretsOf(t, k)["ovn-sb"][keyCert]), x509.ExtKeyUsageServerAuth, "sb") {
			t.Errorf("damage %d: the node does not accept the database", i)
		}
	}
	if aside := read(t, node.Dir, "ovn-privkey.pem.unreadable"); string(aside) != "text" {
		t.Errorf("the key that could not be read: %q", aside)
	}
}

// TestSecretOfAnother: a Secret with wrong content is replaced, except for an authority.
func TestSecretOfAnother(t *testing.T) {
	kube := server(agent("n1"))
	k := Issuer{Client: kube, Namespace: namespace, Now: (&clock{}).Now}
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string][]byte{keyCert: []byte("x")}}
	}
	for _, name := range []string{"ovn-nb", nodes} {
		if err := kube.Tracker().Add(secret(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "secret "+nodes) {
		t.Errorf("authority that cannot be read: %v", err)
	}
	all := secretsOf(t, k)
	if cert := certificate(t, all["ovn-nb"][keyCert]); cert.Subject.CommonName != "nb" {
		t.Errorf("common name %q", cert.Subject.CommonName)
	}
	if string(all[nodes][keyCert]) != "x" || all["ovn-sb"] != nil {
		t.Error("an authority was replaced")
	}
}
