package pki_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
)

const quarter = 90 * daily

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("no PEM: %q", text)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestEnsureAfterTheClockWasAhead: a certificate that is not valid yet is replaced by one that is, with the same key,
// which ends no earlier; one within the tolerance for the clocks of two nodes stays.
func TestEnsureAfterTheClockWasAhead(t *testing.T) {
	a, err := pki.NewAuthority("test", start, 100*quarter)
	if err != nil {
		t.Fatal(err)
	}
	for ahead, replaced := range map[time.Duration]bool{0: false, 59 * time.Minute: false, 2 * time.Hour: true, 100 * daily: true, 99 * quarter: true} {
		early, _, err := a.Ensure(pki.Text{}, server, start.Add(ahead), quarter)
		if err != nil {
			t.Fatal(err)
		}
		now, changed, err := a.Ensure(early, server, start, quarter)
		if err != nil || changed != replaced {
			t.Errorf("%s ahead: changed %t, %v", ahead, changed, err)
		}
		if old, cert := parse(t, early.Cert), parse(t, now.Cert); start.Before(cert.NotBefore) || cert.NotAfter.Before(old.NotAfter) || !bytes.Equal(early.Key, now.Key) {
			t.Errorf("%s ahead: valid from %s until %s, before until %s", ahead, cert.NotBefore, cert.NotAfter, old.NotAfter)
		}
		if _, again, err := a.Ensure(now, server, start, quarter); err != nil || again {
			t.Errorf("%s ahead: changed again: %t, %v", ahead, again, err)
		}
	}
}

// TestRenewAfterTheClockWasAhead: the same in a directory, however long the certificate is still valid, or if it ends
// with its authority.
func TestRenewAfterTheClockWasAhead(t *testing.T) {
	d := authority(t)
	issue(t, d, "early", server, start.Add(20*daily), 30)
	issue(t, d, "last", server, start.Add(90*daily), 30)
	certs, err := d.Renew(start, daily)
	if err != nil || len(certs) != 2 || !certs[0].Renewed || !certs[1].Renewed {
		t.Fatalf("Renew: %+v, %v", certs, err)
	}
	for i, days := range []time.Duration{50, 100} {
		if c := certs[i].Cert; c.NotBefore.After(start) || !c.NotAfter.Equal(start.Add(days*daily)) {
			t.Errorf("%s: valid from %s until %s", certs[i].Name, c.NotBefore, c.NotAfter)
		}
	}
}

// TestAuthorityNotYetValid: nobody accepts what it signs, so it signs nothing.
func TestAuthorityNotYetValid(t *testing.T) {
	d := authority(t)
	issue(t, d, "nb", server, start, 30)
	before := content(t, d)
	for days, want := range map[int]string{-1: "is not valid before 2026-03-01 11:00 UTC, and it is 2026-02-28 12:00 UTC", 100: "expired on 2026-06-09"} {
		now := start.Add(time.Duration(days) * daily)
		_, err := d.Issue("sb", server, now, daily, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("day %d, issue: %v", days, err)
		}
	}
	if _, err := d.Renew(start.Add(-daily), daily); err == nil || !strings.Contains(err.Error(), "is not valid before") {
		t.Errorf("renew: %v", err)
	}
	if after := content(t, d); !reflect.DeepEqual(before, after) {
		t.Error("it has written files")
	}
}
