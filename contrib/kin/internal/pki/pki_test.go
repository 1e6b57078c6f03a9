package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestIssuedServerIsTrustedWhereItAnswers(t *testing.T) {
	ca, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	// Load the authority as a later command does.
	dir := t.TempDir()
	if err := ca.Save(dir); err != nil {
		t.Fatal(err)
	}
	if ca, err = LoadAuthority(dir); err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(Subject{Name: "kubernetes", DNS: []string{"kubernetes.default"}, Addresses: []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.96.0.1")}})
	if err != nil {
		t.Fatal(err)
	}
	cert := parse(t, pair)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	for name, trusted := range map[string]bool{"kubernetes.default": true, "10.96.0.1": true, "fd00::1": true, "10.96.0.2": false, "other": false} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		if (err == nil) != trusted {
			t.Errorf("%s: trusted %t, want %t (%v)", name, err == nil, trusted, err)
		}
	}
	other, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	foreign := x509.NewCertPool()
	foreign.AppendCertsFromPEM(other.PEM())
	if _, err := cert.Verify(x509.VerifyOptions{Roots: foreign}); err == nil {
		t.Error("trusted by an authority that did not sign it")
	}
}

func TestClientIsNoServer(t *testing.T) {
	ca, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(Subject{Name: "admin", Groups: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	cert := parse(t, pair)
	if cert.Subject.CommonName != "admin" || strings.Join(cert.Subject.Organization, " ") != "system:masters" {
		t.Errorf("subject is %s", cert.Subject)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client's certificate may serve")
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("a client's certificate is not one: %v", err)
	}
}

func TestKubeconfigCarriesTheCertificates(t *testing.T) {
	ca, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(Subject{Name: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		CurrentContext string `json:"current-context"`
		Clusters       []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Cert string `json:"client-certificate-data"`
				Key  string `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(ca.Kubeconfig("kin-x", "https://[fc00::2]:6443", pair), &file); err != nil {
		t.Fatal(err)
	}
	if file.CurrentContext != "kin-x" || file.Clusters[0].Cluster.Server != "https://[fc00::2]:6443" {
		t.Errorf("got %+v", file)
	}
	for text, want := range map[string][]byte{file.Clusters[0].Cluster.CA: ca.PEM(), file.Users[0].User.Cert: pair.Cert, file.Users[0].User.Key: pair.Key} {
		if got, err := base64.StdEncoding.DecodeString(text); err != nil || string(got) != string(want) {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func parse(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
