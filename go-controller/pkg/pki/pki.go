package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// backdated is how far in the past a certificate's validity begins, because the clocks of two nodes differ.
const backdated = time.Hour

// Authority signs certificates.
type Authority struct {
	Cert *x509.Certificate
	key  crypto.Signer
}

// Subject is what a certificate identifies.
type Subject struct {
	// Name is the common name. OVN's southbound database uses it as the identity of a chassis.
	Name string
	// DNS and Addresses are the names and addresses of a server.
	DNS       []string
	Addresses []netip.Addr
	// Server and Client are the allowed uses of the certificate. OpenSSL, and so every program of OVN, refuses a
	// peer whose certificate does not allow its role.
	Server, Client bool
}

// NewAuthority makes a self-signed authority.
func NewAuthority(name string, now time.Time, lifetime time.Duration) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(name, now, lifetime)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.MaxPathLenZero = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %s: %w", name, err)
	}
	return &Authority{Cert: cert, key: key}, nil
}

// Issue makes a key and signs a certificate for it.
func (a *Authority) Issue(s Subject, now time.Time, lifetime time.Duration) (*x509.Certificate, crypto.Signer, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	cert, err := a.Sign(key.Public(), s, now, lifetime)
	return cert, key, err
}

// Sign signs a certificate for somebody else's key.
func (a *Authority) Sign(key crypto.PublicKey, s Subject, now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	template, err := newTemplate(s.Name, now, lifetime)
	if err != nil {
		return nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	if s.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if s.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	template.DNSNames = s.DNS
	for _, addr := range s.Addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(addr.AsSlice()))
	}
	return a.sign(template, key, now)
}

// Renew signs a new certificate for the same key, subject and uses.
func (a *Authority) Renew(old *x509.Certificate, now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	if err := old.CheckSignatureFrom(a.Cert); err != nil {
		return nil, fmt.Errorf("certificate of %s: not signed by this authority: %w", old.Subject.CommonName, err)
	}
	template, err := newTemplate(old.Subject.CommonName, now, atLeast(lifetime, old, now))
	if err != nil {
		return nil, err
	}
	template.KeyUsage, template.ExtKeyUsage = old.KeyUsage, old.ExtKeyUsage
	template.DNSNames, template.IPAddresses = old.DNSNames, old.IPAddresses
	return a.sign(template, old.PublicKey, now)
}

// Valid returns why nobody accepts now what the authority has signed, or signs.
func (a *Authority) Valid(now time.Time) error {
	switch {
	case !now.Before(a.Cert.NotAfter):
		return fmt.Errorf("the authority expired on %s", day(a.Cert.NotAfter))
	case now.Before(a.Cert.NotBefore):
		return fmt.Errorf("the authority is not valid before %s, and it is %s: either the clock is behind, or it was ahead when the authority was created",
			minute(a.Cert.NotBefore), minute(now))
	}
	return nil
}

// sign signs a certificate that expires with the authority at the latest.
func (a *Authority) sign(template *x509.Certificate, key crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	if err := a.Valid(now); err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", template.Subject.CommonName, err)
	}
	if template.NotAfter.After(a.Cert.NotAfter) {
		template.NotAfter = a.Cert.NotAfter
	}
	cert, err := sign(template, a.Cert, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	return cert, nil
}

func sign(template, parent *x509.Certificate, key crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newTemplate(name string, now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choose serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(lifetime),
		BasicConstraintsValid: true,
	}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

// encodeKey returns a key as PKCS #8, which OpenSSL and Go can read.
func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func parseCert(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

func parseKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("no private key in PEM (PKCS #8)")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("a key that cannot sign")
	}
	return signer, nil
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
