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
	"io/fs"
	"os"
	"slices"
	"time"
)

// Text is a certificate, its key and the trusted certificates, in PEM, for use without files.
type Text struct{ Key, Cert, CA []byte }

// Certificate returns the certificate of the authority in PEM.
func (a *Authority) Certificate() []byte { return encodeCert(a.Cert) }

// Text returns the authority, with its key.
func (a *Authority) Text() (Text, error) {
	key, err := encodeKey(a.key)
	return Text{Key: key, Cert: a.Certificate(), CA: a.Certificate()}, err
}

// Authority parses an authority.
func (t Text) Authority() (*Authority, error) {
	cert, err := parseCert(t.Cert)
	if err != nil {
		return nil, fmt.Errorf("read certificate of the authority: %w", err)
	}
	return newAuthority(cert, t.Key)
}

// Ensure returns what t has to be for a subject: t itself if it is for the subject, is valid and will be for some time,
// the same key with a new certificate if not, and otherwise a new key and certificate. It reports whether t
// has changed.
func (a *Authority) Ensure(t Text, s Subject, now time.Time, lifetime time.Duration) (Text, bool, error) {
	var cert *x509.Certificate
	old, err := parseCert(t.Cert)
	key, keyErr := parseKey(t.Key)
	switch {
	case err != nil || keyErr != nil || !belongs(old, key) || !s.is(old) || old.CheckSignatureFrom(a.Cert) != nil:
		if cert, key, err = a.Issue(s, now, lifetime); err != nil {
			return Text{}, false, err
		}
	case now.Before(old.NotBefore), Due(old, now) && !old.NotAfter.Equal(a.Cert.NotAfter):
		if cert, err = a.Sign(key.Public(), s, now, atLeast(lifetime, old, now)); err != nil {
			return Text{}, false, err
		}
	default:
		return t, false, nil
	}
	out := Text{Cert: encodeCert(cert), CA: a.Certificate()}
	out.Key, err = encodeKey(key)
	return out, true, err
}

// Due reports whether a certificate has to be renewed: less than a third of its lifetime is left, or it is not valid
// yet, because the clock of whoever signed it was ahead.
func Due(cert *x509.Certificate, now time.Time) bool {
	return now.Before(cert.NotBefore) || cert.NotAfter.Sub(now) < lifetime(cert)/3
}

// atLeast returns the lifetime of a certificate that replaces another one: it does not end earlier than that. If it
// is not valid yet because the clock is behind now, the new one would end too early.
func atLeast(lifetime time.Duration, old *x509.Certificate, now time.Time) time.Duration {
	return max(lifetime, old.NotAfter.Sub(now))
}

// is reports whether a certificate is for exactly this subject.
func (s Subject) is(cert *x509.Certificate) bool {
	if cert.Subject.CommonName != s.Name || !slices.Equal(cert.DNSNames, s.DNS) || len(cert.IPAddresses) != len(s.Addresses) {
		return false
	}
	for i, addr := range s.Addresses {
		if !cert.IPAddresses[i].Equal(addr.AsSlice()) {
			return false
		}
	}
	uses := func(u x509.ExtKeyUsage) bool { return slices.Contains(cert.ExtKeyUsage, u) }
	return uses(x509.ExtKeyUsageServerAuth) == s.Server && uses(x509.ExtKeyUsageClientAuth) == s.Client
}

// SignRequest signs the key of a certificate request, for a client. The request has to be for the given common name
// and nothing else.
func (a *Authority) SignRequest(request []byte, name string, now time.Time, lifetime time.Duration) ([]byte, error) {
	key, err := CheckRequest(request, name)
	if err != nil {
		return nil, err
	}
	cert, err := a.Sign(key, Subject{Name: name, Client: true}, now, lifetime)
	if err != nil {
		return nil, err
	}
	return encodeCert(cert), nil
}

// requestType is the type of the PEM block.
const requestType = "CERTIFICATE REQUEST"

// CheckRequest returns the key of a certificate request. It refuses a request for anything but a common name and a
// key of the type that this package makes.
func CheckRequest(request []byte, name string) (*ecdsa.PublicKey, error) {
	block, rest := pem.Decode(request)
	if block == nil || block.Type != requestType || len(rest) != 0 {
		return nil, errors.New("not one certificate request in PEM")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate request: %w", err)
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	key, ok := r.PublicKey.(*ecdsa.PublicKey)
	switch {
	case !ok || key.Curve != elliptic.P256():
		return nil, errors.New("certificate request: the key is not ECDSA P-256")
	case r.Subject.String() != (pkix.Name{CommonName: name}).String():
		return nil, fmt.Errorf("certificate request: for %q, not for %q", r.Subject, pkix.Name{CommonName: name})
	case len(r.DNSNames)+len(r.IPAddresses)+len(r.EmailAddresses)+len(r.URIs)+len(r.Extensions) != 0:
		return nil, errors.New("certificate request: asks for more than a common name")
	case name == "" || len(name) > CommonNameLength:
		return nil, fmt.Errorf("certificate request: a common name has 1 to %d characters", CommonNameLength)
	}
	return key, nil
}

// CommonNameLength is the maximum length in X.509.
const CommonNameLength = 64

// Request returns a certificate request for a client with the given common name. Its key is in the directory, under
// name; it is made if it does not exist. A file that is no key is kept beside a new one.
func (d Dir) Request(name, commonName string) ([]byte, error) {
	path := d.path(name + keySuffix)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := parseKey(data)
	if err != nil {
		if key, err = d.newKey(path); err != nil {
			return nil, err
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName}}, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: requestType, Bytes: der}), nil
}

// newKey makes a key in a file. What the file had is kept beside it.
func (d Dir) newKey(path string) (crypto.Signer, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := os.Rename(path, path+".unreadable"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keep the file that is no key: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	data, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return key, write(path, data, 0o600, false)
}

// parseCerts parses certificates up to the first that cannot be parsed. A file may have the key as well, in any order.
func parseCerts(text []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			break
		}
		out = append(out, cert)
	}
	return out
}

// Expiration returns when the first of the certificates in a file expires.
func Expiration(file string) (time.Time, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("read certificate: %w", err)
	}
	certs := parseCerts(text)
	if len(certs) == 0 {
		return time.Time{}, fmt.Errorf("read certificate: no certificate in %s", file)
	}
	first := slices.MinFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return first.NotAfter, nil
}

// IssuedBy reports whether some certificate in a PEM text names the given authority as its issuer. An authority is its
// own issuer.
func IssuedBy(authority string, text []byte) bool {
	return slices.ContainsFunc(parseCerts(text), func(c *x509.Certificate) bool { return c.Issuer.CommonName == authority })
}

// Accept writes the answer to a request: the certificate, then the authorities to trust, one of which signed it. It
// refuses a certificate for another key.
func (d Dir) Accept(name string, answer []byte) (*x509.Certificate, error) {
	block, rest := pem.Decode(answer) // rest: the trusted certificates
	if block == nil {
		return nil, errors.New("read answer: no certificate in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if !signedBy(cert, rest) {
		return nil, errors.New("read answer: no certificate of the authority that signed")
	}
	data, err := os.ReadFile(d.path(name + keySuffix))
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := parseKey(data)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	if !belongs(cert, key) {
		return nil, errors.New("read answer: the certificate is for another key")
	}
	if err := write(d.path(caCertFile), rest, 0o644, true); err != nil {
		return nil, err
	}
	return cert, d.replace(name, cert)
}

// signedBy reports whether one of the authorities in a PEM text signed a certificate.
func signedBy(cert *x509.Certificate, authorities []byte) bool {
	return slices.ContainsFunc(parseCerts(authorities), func(ca *x509.Certificate) bool { return ca.IsCA && cert.CheckSignatureFrom(ca) == nil })
}

// Certificate returns the certificate of that name if there is one that matches the key next to it, has the
// given common name, and is signed by an authority next to it.
func (d Dir) Certificate(name, commonName string) (*x509.Certificate, error) {
	cert, err := readCert(d.path(name + certSuffix))
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(d.path(name + keySuffix))
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := parseKey(data)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	if !belongs(cert, key) || cert.Subject.CommonName != commonName {
		return nil, fmt.Errorf("%s is not the certificate of %s", d.path(name+certSuffix), commonName)
	}
	authorities, err := os.ReadFile(d.path(caCertFile))
	if err != nil {
		return nil, fmt.Errorf("read authorities: %w", err)
	}
	if !signedBy(cert, authorities) {
		return nil, fmt.Errorf("%s has no authority that signed %s", d.path(caCertFile), d.path(name+certSuffix))
	}
	return cert, nil
}
