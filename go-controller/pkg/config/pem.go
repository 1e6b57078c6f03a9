package config

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
)

// noCertificate is the problem with a PEM file that should have one.
const noCertificate = "has no certificate that can be parsed"

// checkPair checks that the files of a private key and of its certificate can be used together. why ends what is
// allowed.
func (l *loader) checkPair(key, cert *string, why string) error {
	private, err := l.readable(key, "a readable PEM file"+why)
	if err != nil {
		return err
	}
	signed, err := l.readable(cert, "a readable PEM file"+why)
	if err != nil || private == nil || signed == nil {
		return err
	}
	if !hasCertificate(signed) {
		return l.refuse(cert, noCertificate, "a PEM file with a certificate"+why)
	}
	if _, err := tls.X509KeyPair(signed, private); err != nil {
		certificate := l.origin(cert)
		return l.refuse(key, strings.TrimPrefix(err.Error(), "tls: "), "a PEM file with the private key of "+certificate.where+" "+certificate.text+why)
	}
	return nil
}

// checkAuthorities does the same for a file of certificate authorities.
func (l *loader) checkAuthorities(file *string, why string) error {
	text, err := l.readable(file, "a readable PEM file"+why)
	if err != nil || text == nil {
		return err
	}
	if !hasCertificate(text) {
		return l.refuse(file, noCertificate, "a PEM file with the certificate of an authority"+why)
	}
	return nil
}

func hasCertificate(text []byte) bool { return x509.NewCertPool().AppendCertsFromPEM(text) }
