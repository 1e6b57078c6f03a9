package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Session returns the TLS configuration of connections on which the peer has to present a certificate of the
// authority for the given use: x509.ExtKeyUsageServerAuth if the peer is the server. A certificate that does not
// list any uses is accepted for all. If a name is given, the certificate must also be for that name; otherwise any
// name is accepted, since OVN's certificates name components rather than hosts.
//
// The files are read again for each connection. Session fails if they cannot be read now.
func (f Files) Session(use x509.ExtKeyUsage, name string) (*tls.Config, error) {
	if _, err := f.pair(); err != nil {
		return nil, err
	}
	if _, err := f.roots(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		ServerName:           name,
		ClientAuth:           tls.RequireAnyClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.pair() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.pair() },
		InsecureSkipVerify:   true, // the chain is verified below, on both sides
		VerifyConnection: func(s tls.ConnectionState) error {
			roots, err := f.roots()
			if err != nil {
				return err
			}
			return verify(s.PeerCertificates, roots, use, name)
		},
	}, nil
}

func (f Files) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("load certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	return &pair, nil
}

func (f Files) roots() (*x509.CertPool, error) {
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read CA certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read CA certificate: no certificate in %s", f.CA)
	}
	return roots, nil
}

func verify(chain []*x509.Certificate, roots *x509.CertPool, use x509.ExtKeyUsage, name string) error {
	if len(chain) == 0 {
		return errors.New("the other side sent no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, DNSName: name, KeyUsages: []x509.ExtKeyUsage{use},
	})
	return err
}
