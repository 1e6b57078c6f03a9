package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// TestServerIsRenewed: a database presents the renewed certificate to new connections, and keeps existing ones.
func TestServerIsRenewed(t *testing.T) {
	d := authorityNow(t)
	nb, client := files(t, d, "nb", database), files(t, d, "master", client)
	s := ovsdbtest.StartNB(t, withFiles(nb))
	session, err := client.Session(x509.ExtKeyUsageServerAuth, "nb.example")
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(listening(t, s.Address()), "ssl:")
	dial := func() *tls.Conn {
		c, err := tls.Dial("tcp", address, session)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		echo(t, c)
		return c
	}
	before := dial()
	certs, err := d.Renew(time.Now(), 5*daily)
	if err != nil || len(certs) != 2 || !certs[1].Renewed {
		t.Fatalf("Renew: %+v, %v", certs, err)
	}
	eventually.Succeeds(t, "the renewed certificate to be shown", func() error {
		c := dial()
		defer func() { _ = c.Close() }()
		if got := c.ConnectionState().PeerCertificates[0]; !got.Equal(certs[1].Cert) {
			return fmt.Errorf("serial number %d, want %d", got.SerialNumber, certs[1].Cert.SerialNumber)
		}
		return nil
	})
	echo(t, before)
}

// echo checks that a server responds.
func echo(t *testing.T, c *tls.Conn) {
	t.Helper()
	if _, err := c.Write([]byte(`{"method":"echo","params":[],"id":1}`)); err != nil {
		t.Fatal(err)
	}
	var answer struct {
		ID json.Number `json:"id"`
	}
	if err := json.NewDecoder(c).Decode(&answer); err != nil || answer.ID != "1" {
		t.Fatalf("answer %v, %v", answer, err)
	}
}
