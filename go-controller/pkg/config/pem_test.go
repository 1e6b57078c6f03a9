package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"strings"
	"testing"
)

// pair returns a new private key and its certificate as PEM.
func pair(t *testing.T) (key, cert string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, data []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	return text("PRIVATE KEY", der), text("CERTIFICATE", signed)
}

// TestPEM: a file of a key, certificate or authority that cannot be used as such is refused by the
// name of its setting, for each of these settings of the databases, the page and the API server.
func TestPEM(t *testing.T) {
	key, cert := pair(t)
	other, _ := pair(t)
	broken := strings.Replace(cert, "\nM", "\nA", 1)
	files := map[string]string{"/key": key, "/cert": cert, "/other-key": other, "/broken": broken, "/x": "x"}
	readFile := func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}
	for _, use := range []struct {
		key, cert, ca string // options
		flags         map[string]string
	}{
		{"nb-client-privkey", "nb-client-cert", "nb-client-cacert", map[string]string{"nb-address": "ssl:192.0.2.1:6641"}},
		{"sb-client-privkey", "sb-client-cert", "sb-client-cacert", map[string]string{"sb-address": "ssl:192.0.2.1:6642"}},
		{"egress-page-privkey", "egress-page-cert", "", nil},
		{"", "", "k8s-cacert", nil},
	} {
		for _, tc := range []struct{ key, cert, ca, refused, want string }{
			{"/key", "/cert", "/cert", "", ""},
			{"/key", "/x", "/cert", use.cert, "no certificate"},
			{"/key", "/broken", "/cert", use.cert, "no certificate"},
			{"/x", "/cert", "/cert", use.key, "PEM"},
			{"/cert", "/key", "/cert", use.cert, "no certificate"},
			{"/other-key", "/cert", "/cert", use.key, "does not match"},
			{"/key", "/none", "/cert", use.cert, "cannot be read"},
			{"/key", "/cert", "/x", use.ca, "no certificate"},
			{"/key", "/cert", "/key", use.ca, "no certificate"},
			{"/key", "/cert", "/none", use.ca, "cannot be read"},
		} {
			flags := map[string]string{use.key: tc.key, use.cert: tc.cert, use.ca: tc.ca}
			delete(flags, "")
			for name, text := range use.flags {
				flags[name] = text
			}
			_, _, err := Load(Sources{Flags: flags, ReadFile: readFile})
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("%v: %v", flags, err)
			case tc.refused != "" && (err == nil || !strings.HasPrefix(err.Error(), "--"+tc.refused+": value ") || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%v: %v, want --%s to be refused: %s", flags, err, tc.refused, tc.want)
			case err != nil && strings.Contains(err.Error(), "\n"):
				t.Errorf("more than one line: %v", err)
			}
		}
	}
}

// TestMetricsFilesLater: the files of the metrics server may appear, and become usable, later.
func TestMetricsFilesLater(t *testing.T) {
	for _, text := range []string{"", "x"} {
		readFile := func(string) ([]byte, error) {
			if text == "" {
				return nil, os.ErrNotExist
			}
			return []byte(text), nil
		}
		if _, _, err := Load(Sources{Flags: map[string]string{"node-server-privkey": "/k", "node-server-cert": "/c"}, ReadFile: readFile}); err != nil {
			t.Error(err)
		}
	}
}
