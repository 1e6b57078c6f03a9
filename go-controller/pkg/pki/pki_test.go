package pki_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
)

const daily = 24 * time.Hour

var (
	start  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	server = pki.Subject{
		Name: "nb", DNS: []string{"nb.example"}, Server: true, Client: true,
		Addresses: []netip.Addr{netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("fd00::2")},
	}
	chassis = pki.Subject{Name: "6a3f3a4e-7c2b-4a52-9f0f-0d6d0c8d5a11", Client: true}
)

func authority(t *testing.T) pki.Dir {
	t.Helper()
	d := pki.Dir(filepath.Join(t.TempDir(), "pki"))
	if _, err := d.Init("test", start, 100*daily); err != nil {
		t.Fatal(err)
	}
	return d
}

func issue(t *testing.T, d pki.Dir, name string, s pki.Subject, now time.Time, days int) *x509.Certificate {
	t.Helper()
	cert, err := d.Issue(name, s, now, time.Duration(days)*daily, false)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// content is the content of all files in a directory.
func content(t *testing.T, d pki.Dir) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(string(d))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		out[e.Name()] = read(t, filepath.Join(string(d), e.Name()))
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// onDisk returns the certificate in a file.
func onDisk(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(read(t, path)))
	if block == nil {
		t.Fatalf("no PEM in %s", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func checkMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != want {
		t.Errorf("%s has mode %o, want %o", path, info.Mode().Perm(), want)
	}
}

func TestAuthority(t *testing.T) {
	d := authority(t)
	checkMode(t, string(d), 0o700)
	checkMode(t, filepath.Join(string(d), "cakey.pem"), 0o600)
	checkMode(t, filepath.Join(string(d), "cacert.pem"), 0o644)
	ca := onDisk(t, filepath.Join(string(d), "cacert.pem"))
	if !ca.IsCA || ca.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign || ca.MaxPathLen != 0 || !ca.MaxPathLenZero {
		t.Errorf("no authority for leaves only: CA %v, usage %b, path length %d", ca.IsCA, ca.KeyUsage, ca.MaxPathLen)
	}
	if ca.Subject.CommonName != "test" || !ca.NotAfter.Equal(start.Add(100*daily)) {
		t.Errorf("authority %s until %s", ca.Subject.CommonName, ca.NotAfter)
	}
	if files := content(t, d); len(files) != 2 {
		t.Errorf("want two files, there are %d", len(files))
	}
}

// An existing authority is never replaced, whichever of its files exists.
func TestInitKeepsAuthority(t *testing.T) {
	for _, gone := range []string{"", "cacert.pem", "cakey.pem"} {
		d := authority(t)
		if gone != "" {
			if err := os.Remove(filepath.Join(string(d), gone)); err != nil {
				t.Fatal(err)
			}
		}
		before := content(t, d)
		if _, err := d.Init("test", start, daily); !errors.Is(err, fs.ErrExist) {
			t.Errorf("without %q: %v, want that it exists", gone, err)
		}
		if after := content(t, d); !reflect.DeepEqual(before, after) {
			t.Errorf("without %q: files have changed", gone)
		}
	}
}

func TestIssue(t *testing.T) {
	for name, tc := range map[string]struct {
		subject pki.Subject
		uses    []x509.ExtKeyUsage
	}{
		"server": {server, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		"client": {chassis, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		d := authority(t)
		issue(t, d, name, tc.subject, start, 30)
		f := d.Files(name)
		checkMode(t, f.Key, 0o600)
		checkMode(t, f.Cert, 0o644)
		cert, roots := onDisk(t, f.Cert), x509.NewCertPool()
		roots.AddCert(onDisk(t, f.CA))
		if cert.IsCA || cert.Subject.CommonName != tc.subject.Name || !reflect.DeepEqual(cert.ExtKeyUsage, tc.uses) || cert.KeyUsage != x509.KeyUsageDigitalSignature {
			t.Errorf("%s: CA %v, %s, uses %v %b", name, cert.IsCA, cert.Subject, cert.ExtKeyUsage, cert.KeyUsage)
		}
		hosts := append([]string{}, tc.subject.DNS...)
		for _, a := range tc.subject.Addresses {
			hosts = append(hosts, a.String())
		}
		for _, host := range hosts {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: start}); err != nil {
				t.Errorf("%s as %s: %v", name, host, err)
			}
		}
		if err := cert.VerifyHostname("other.example"); err == nil {
			t.Errorf("%s is valid for a host that nobody named", name)
		}
		for _, at := range []time.Duration{-2 * time.Hour, 31 * daily} {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: start.Add(at), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
				t.Errorf("%s is valid %s from its issue", name, at)
			}
		}
	}
}

func TestIssueKeepsFiles(t *testing.T) {
	for _, gone := range []string{"", "nb-cert.pem", "nb-privkey.pem"} {
		d := authority(t)
		issue(t, d, "nb", server, start, 30)
		if gone != "" {
			if err := os.Remove(filepath.Join(string(d), gone)); err != nil {
				t.Fatal(err)
			}
		}
		before := content(t, d)
		if _, err := d.Issue("nb", server, start, daily, false); !errors.Is(err, fs.ErrExist) {
			t.Errorf("without %q: %v, want that it exists", gone, err)
		}
		if after := content(t, d); !reflect.DeepEqual(before, after) {
			t.Errorf("without %q: files have changed", gone)
		}
		if _, err := d.Issue("nb", server, start, daily, true); err != nil {
			t.Error(err)
		}
		f, after := d.Files("nb"), content(t, d)
		checkMode(t, f.Key, 0o600)
		if len(after) != 4 || after["nb-cert.pem"] == before["nb-cert.pem"] || after["nb-privkey.pem"] == before["nb-privkey.pem"] {
			t.Errorf("without %q: asked to overwrite, and did not: %d files", gone, len(after))
		}
	}
}

// No certificate outlives its authority, and an expired authority signs nothing.
func TestAuthorityEnds(t *testing.T) {
	d := authority(t)
	late := start.Add(90 * daily)
	if cert := issue(t, d, "late", server, late, 365); !cert.NotAfter.Equal(start.Add(100 * daily)) {
		t.Errorf("valid until %s, after its authority", cert.NotAfter)
	}
	if certs, err := d.Renew(late.Add(daily), 50*daily); err != nil || len(certs) != 1 || certs[0].Renewed {
		t.Errorf("renewing what ends with its authority: %+v, %v", certs, err)
	}
	before := content(t, d)
	if _, err := d.Issue("later", server, start.Add(100*daily), daily, false); err == nil || !strings.Contains(err.Error(), "authority expired on 2026-06-09") {
		t.Errorf("an expired authority: %v", err)
	}
	if after := content(t, d); !reflect.DeepEqual(before, after) {
		t.Error("an expired authority wrote files")
	}
}

func TestRenew(t *testing.T) {
	d := authority(t)
	old := issue(t, d, "soon", server, start, 10)
	issue(t, d, "later", chassis, start, 60)
	before, now := content(t, d), start.Add(5*daily)
	certs, err := d.Renew(now, 20*daily)
	if err != nil || len(certs) != 2 || certs[0].Name != "later" || certs[0].Renewed || certs[1].Name != "soon" || !certs[1].Renewed {
		t.Fatalf("Renew: %+v, %v", certs, err)
	}
	after := content(t, d)
	for name := range after {
		if changed := after[name] != before[name]; changed != (name == "soon-cert.pem") {
			t.Errorf("%s changed: %v", name, changed)
		}
	}
	cert := onDisk(t, d.Files("soon").Cert)
	if !cert.NotAfter.Equal(now.Add(10*daily)) || cert.SerialNumber.Cmp(old.SerialNumber) == 0 {
		t.Errorf("valid until %s, serial number %s", cert.NotAfter, cert.SerialNumber)
	}
	if !bytes.Equal(cert.RawSubjectPublicKeyInfo, old.RawSubjectPublicKeyInfo) || cert.Subject.String() != old.Subject.String() ||
		!reflect.DeepEqual(cert.DNSNames, old.DNSNames) || len(cert.IPAddresses) != 2 || cert.VerifyHostname("fd00::2") != nil ||
		!reflect.DeepEqual(cert.ExtKeyUsage, old.ExtKeyUsage) || cert.KeyUsage != old.KeyUsage {
		t.Errorf("another certificate than before: %s %v %v %v", cert.Subject, cert.DNSNames, cert.IPAddresses, cert.ExtKeyUsage)
	}
	checkMode(t, d.Files("soon").Cert, 0o644)
	if _, err := d.Renew(now, 5*daily); err != nil {
		t.Error(err)
	}
	if again := content(t, d); !reflect.DeepEqual(after, again) {
		t.Error("nothing was to be renewed, and something was")
	}
}

// What another authority signed is not renewed, and does not keep others from being renewed.
func TestRenewForeign(t *testing.T) {
	d, other := authority(t), authority(t)
	issue(t, other, "a", server, start, 10)
	issue(t, d, "b", server, start, 10)
	foreign := read(t, other.Files("a").Cert)
	if err := os.WriteFile(d.Files("a").Cert, []byte(foreign), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Files("0").Cert, []byte("no PEM"), 0o644); err != nil {
		t.Fatal(err)
	}
	certs, err := d.Renew(start, 20*daily)
	if err == nil || !strings.Contains(err.Error(), "a-cert.pem") || !strings.Contains(err.Error(), "0-cert.pem") {
		t.Errorf("error %v, want both files", err)
	}
	if len(certs) != 1 || certs[0].Name != "b" || !certs[0].Renewed {
		t.Errorf("renewed %+v, want b", certs)
	}
	if read(t, d.Files("a").Cert) != foreign {
		t.Error("a certificate of another authority was replaced")
	}
}

func TestBrokenAuthority(t *testing.T) {
	for name, spoil := range map[string]func(d, other pki.Dir) (string, string){
		"another key": func(_, o pki.Dir) (string, string) {
			return "cakey.pem", read(t, filepath.Join(string(o), "cakey.pem"))
		},
		"another certificate":  func(_, o pki.Dir) (string, string) { return "cacert.pem", read(t, o.Files("x").CA) },
		"no authority":         func(d, _ pki.Dir) (string, string) { return "cacert.pem", read(t, d.Files("nb").Cert) },
		"no key":               func(_, _ pki.Dir) (string, string) { return "cakey.pem", "" },
		"key for certificate":  func(d, _ pki.Dir) (string, string) { return "cacert.pem", read(t, d.Files("nb").Key) },
		"certificate is empty": func(_, _ pki.Dir) (string, string) { return "cacert.pem", "" },
	} {
		d, other := authority(t), authority(t)
		issue(t, d, "nb", server, start, 10)
		file, text := spoil(d, other)
		if err := os.WriteFile(filepath.Join(string(d), file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		before := content(t, d)
		if _, err := d.Issue("sb", server, start, daily, false); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: Issue: %v, want an error that names %s", name, err, file)
		}
		if _, err := d.Renew(start, 50*daily); err == nil {
			t.Errorf("%s: renewed", name)
		}
		if after := content(t, d); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: files have changed", name)
		}
	}
}
