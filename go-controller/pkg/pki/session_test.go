package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
)

// shake has two sides do a handshake and exchange a word, and returns the error of each.
func shake(t *testing.T, client, server *tls.Config) (ofClient, ofServer error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // with an unbuffered pipe, both sides would wait for each other
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		far, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer far.Close()
		s := tls.Server(far, server)
		if err = s.Handshake(); err == nil {
			_, err = s.Write([]byte("x"))
		}
		done <- err
	}()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(near, client)
	if err = c.Handshake(); err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	near.Close()
	return err, <-done
}

func session(t *testing.T, f pki.Files, use x509.ExtKeyUsage, name string) *tls.Config {
	t.Helper()
	c, err := f.Session(use, name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSession: each side accepts only what the same authority has signed for the peer's use.
func TestSession(t *testing.T) {
	d, other := authorityNow(t), authorityNow(t)
	nb, master, foreign := files(t, d, "nb", database), files(t, d, "master", client), files(t, other, "nb", database)
	onlyServer := files(t, d, "server", pki.Subject{Name: "s", Server: true})
	anyUse := files(t, d, "any", pki.Subject{Name: "a", DNS: []string{"nb.example"}})
	mixed := func(f pki.Files) pki.Files { f.CA = nb.CA; return f }
	for name, c := range map[string]struct {
		client, server     pki.Files
		serverName         string
		ofClient, ofServer string // the refusals
	}{
		"client to server":             {master, nb, "", "", ""},
		"name that the server has":     {master, nb, "nb.example", "", ""},
		"address that the server has":  {master, nb, "127.0.0.1", "", ""},
		"name that it does not have":   {master, nb, "sb.example", "not sb.example", ""},
		"client poses as a server":     {master, master, "", "incompatible key usage", ""},
		"server poses as a client":     {onlyServer, nb, "", "", "incompatible key usage"},
		"certificates without uses":    {anyUse, anyUse, "nb.example", "", ""},
		"server of another authority":  {master, mixed(foreign), "", "unknown authority", ""},
		"client of another authority":  {mixed(foreign), nb, "", "", "unknown authority"},
		"no certificate of the client": {pki.Files{}, nb, "", "", "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			from := &tls.Config{InsecureSkipVerify: true}
			if c.client != (pki.Files{}) {
				from = session(t, c.client, x509.ExtKeyUsageServerAuth, c.serverName)
			}
			ofClient, ofServer := shake(t, from, session(t, c.server, x509.ExtKeyUsageClientAuth, ""))
			check := func(side, want string, err error) {
				if want != "" && (err == nil || !strings.Contains(err.Error(), want)) || want == "" && c.ofClient+c.ofServer == "" && err != nil {
					t.Errorf("%s: %v, want %q", side, err, want)
				}
			}
			check("client", c.ofClient, ofClient)
			check("server", c.ofServer, ofServer)
		})
	}
}

// TestSessionReloads: the files are read again for each connection.
func TestSessionReloads(t *testing.T) {
	d, other := authorityNow(t), authorityNow(t)
	nb, master := files(t, d, "nb", database), files(t, d, "master", client)
	next := files(t, other, "nb", database)
	server, client := session(t, nb, x509.ExtKeyUsageClientAuth, ""), session(t, master, x509.ExtKeyUsageServerAuth, "")
	if a, b := shake(t, client, server); a != nil || b != nil {
		t.Fatal(errors.Join(a, b))
	}
	replace := func(path, with string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(read(t, with)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	both := read(t, nb.CA) + read(t, next.CA)
	replace(nb.Key, next.Key)
	replace(nb.Cert, next.Cert)
	if err, _ := shake(t, client, server); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("the new certificate: %v", err)
	}
	if err := os.WriteFile(nb.CA, []byte(both), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, b := shake(t, client, server); a != nil || b != nil {
		t.Error(errors.Join(a, b))
	}
	if err := os.Remove(nb.CA); err != nil {
		t.Fatal(err)
	}
	if a, _ := shake(t, client, server); a == nil {
		t.Error("without an authority everybody is let in")
	}
}

// TestSessionRefuses: unreadable files are reported immediately.
func TestSessionRefuses(t *testing.T) {
	d := authorityNow(t)
	good := files(t, d, "nb", database)
	for name, f := range map[string]pki.Files{
		"key": {Key: "/nonexistent", Cert: good.Cert, CA: good.CA}, "certificate": {Key: good.Key, Cert: "/nonexistent", CA: good.CA},
		"authority": {Key: good.Key, Cert: good.Cert, CA: "/nonexistent"}, "no certificate": {Key: good.Key, Cert: good.Cert, CA: good.Key},
	} {
		if _, err := f.Session(x509.ExtKeyUsageServerAuth, ""); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
