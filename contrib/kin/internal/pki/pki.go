// Package pki creates a cluster's certificates and the kubeconfig files that
// contain them.
//
// One authority signs everything; it is in the cluster's state directory
// and is deleted with it. Keys are ECDSA P-256: creating the dozens a cluster needs
// takes milliseconds.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// lifetime outlasts any cluster of this kind.
const lifetime = 10 * 365 * 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// Pair is a certificate with its key, both PEM.
type Pair struct{ Cert, Key []byte }

// Subject is the subject of a certificate.
type Subject struct {
	// Name and Groups are the user and groups the API server sees.
	Name   string
	Groups []string
	// DNS and Addresses are the names of a server; without any, the certificate is
	// only for clients.
	DNS       []string
	Addresses []netip.Addr
}

// NewAuthority creates a self-signed authority.
func NewAuthority(name string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := template(name)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back authority %s: %w", name, err)
	}
	return &Authority{cert: cert, key: key, pem: encode("CERTIFICATE", der)}, nil
}

// LoadAuthority reads an authority that Save has written.
func LoadAuthority(dir string) (*Authority, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, fmt.Errorf("read authority's key: %w", err)
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, errors.New("read authority: not PEM")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read authority's key: %w", err)
	}
	return &Authority{cert: cert, key: key, pem: certPEM}, nil
}

// Save writes ca.crt and ca.key into a directory.
func (a *Authority) Save(dir string) error {
	key, err := encodeKey(a.key)
	if err != nil {
		return err
	}
	return Pair{Cert: a.pem, Key: key}.Save(dir, "ca")
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte { return a.pem }

// Issue creates a key and signs a certificate for it.
func (a *Authority) Issue(s Subject) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	template := template(s.Name)
	template.Subject.Organization = s.Groups
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	template.DNSNames = s.DNS
	for _, addr := range s.Addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(addr.AsSlice()))
	}
	if len(s.DNS)+len(s.Addresses) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %s: %w", s.Name, err)
	}
	keyPEM, err := encodeKey(key)
	return Pair{Cert: encode("CERTIFICATE", der), Key: keyPEM}, err
}

// Save writes NAME.crt and NAME.key; the key is for root alone.
func (p Pair) Save(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make certificate directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o644); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

// SigningKey creates the key pair that signs service account tokens: the private
// key, and the public one that verifies, both PEM.
func SigningKey() (private, public []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if private, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encode public key: %w", err)
	}
	return private, encode("PUBLIC KEY", der), nil
}

// Kubeconfig returns a kubeconfig with embedded certificates and key.
func (a *Authority) Kubeconfig(context, server string, p Pair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: %[1]s
contexts:
- name: %[1]s
  context:
    cluster: %[1]s
    user: %[1]s
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: %[1]s
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
`, context, server, b64(a.pem), b64(p.Cert), b64(p.Key))
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		// The clock of a node may be slightly behind that of the signer.
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(lifetime),
	}
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
