package ovsdbtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are the paths of a key, a certificate and the certificate of the CA that signed it. As with ovs-pki,
// the certificate does not name a host.
type Certificates struct{ Key, Cert, CA string }

// NewCertificates makes a CA and certificates signed by it, for a server and clients.
func NewCertificates(t testing.TB) *Certificates {
	t.Helper()
	dir := t.TempDir()
	caKey, ca := newKey(t), certificate("CA")
	ca.IsCA, ca.KeyUsage, ca.BasicConstraintsValid = true, x509.KeyUsageCertSign, true
	key, leaf := newKey(t), certificate("ovn")
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatalf("create CA: %v", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatalf("create certificate: %v", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatalf("encode key: %v", err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatalf("write certificate: %v", err)
		}
		return path
	}
	return &Certificates{
		Key:  write("key.pem", "EC PRIVATE KEY", keyDER),
		Cert: write("cert.pem", "CERTIFICATE", der),
		CA:   write("ca.pem", "CERTIFICATE", caDER),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("generate key: %v", err)
	}
	return key
}

func certificate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}
