package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var pkiNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// runPKIAt runs the command at a time, and returns its exit status and output.
func runPKIAt(now time.Time, args ...string) (status int, out, errs string) {
	var stdout, stderr bytes.Buffer
	p := &pkiCommand{out: &stdout, now: func() time.Time { return now }}
	status = p.run(context.Background(), args, &stderr)
	return status, stdout.String(), stderr.String()
}

func mustPKI(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := runPKIAt(pkiNow, args...)
	if status != 0 || errs != "" {
		t.Fatalf("%s: status %d: %s", args, status, errs)
	}
	return out
}

func pkiCert(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name+"-cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestPKI(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if out, want := mustPKI(t, "init", "--dir", dir), "authority ovnkube in "+dir+", valid until 2036-02-27\n"; out != want {
		t.Errorf("init printed %q, want %q", out, want)
	}
	out := mustPKI(t, "issue", "nb", "--dir", dir, "--host", "nb.example", "--host=172.18.0.2,[fd00::2]")
	if want := dir + "/nb-cert.pem\n" + dir + "/nb-privkey.pem\nvalid until 2027-03-01\n"; out != want {
		t.Errorf("issue printed %q, want %q", out, want)
	}
	nb := pkiCert(t, dir, "nb")
	for _, host := range []string{"nb.example", "172.18.0.2", "fd00::2"} {
		if err := nb.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, tc := range []struct {
		args       []string
		file, name string
		uses       []x509.ExtKeyUsage
	}{
		{[]string{"sb", "--host=sb"}, "sb", "sb", both},
		{[]string{"sb", "--host=sb", "--name=sb-2"}, "sb-2", "sb", both},
		{[]string{"northd"}, "northd", "northd", both[1:]},
		{[]string{"chassis", "--system-id=6a3f-1"}, "chassis-6a3f-1", "6a3f-1", both[1:]},
		{[]string{"chassis", "--system-id=6a3f-2", "--name=w2"}, "w2", "6a3f-2", both[1:]},
		{[]string{"master"}, "master", "master", both[1:]},
		{[]string{"node", "--host=172.18.0.3", "--name=node-a"}, "node-a", "node", both},
	} {
		mustPKI(t, append([]string{"issue", tc.args[0], "--dir", dir}, tc.args[1:]...)...)
		cert := pkiCert(t, dir, tc.file)
		if cert.Subject.CommonName != tc.name || !reflect.DeepEqual(cert.ExtKeyUsage, tc.uses) {
			t.Errorf("%s: common name %s, uses %v", tc.args, cert.Subject.CommonName, cert.ExtKeyUsage)
		}
	}
	mustPKI(t, "issue", "master", "--dir", dir, "--overwrite", "--days=100")
	if got := pkiCert(t, dir, "master").NotAfter; !got.Equal(pkiNow.Add(100 * 24 * time.Hour)) {
		t.Errorf("overwritten certificate is valid until %s", got)
	}
	status, out, errs := runPKIAt(pkiNow.AddDate(0, 2, 0), "renew", "--dir", dir)
	if status != 0 || strings.Count(out, "\n") != 8 || strings.Count(out, "renewed") != 1 || !strings.Contains(out, "master: renewed, valid until 2026-08-09\n") {
		t.Errorf("renew: status %d: %s%s", status, out, errs)
	}
	status, _, errs = runPKIAt(pkiNow.AddDate(9, 11, 0), "renew", "--dir", dir)
	if status != 1 || !strings.Contains(errs, "the authority in "+dir+" ends on 2036-02-27") {
		t.Errorf("renew under an authority that ends: status %d: %s", status, errs)
	}
}

// On any error: exit status 1, one line that names the flag, and no file is written.
func TestPKIRefusals(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	mustPKI(t, "init", "--dir="+dir)
	mustPKI(t, "issue", "master", "--dir="+dir)
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	const noHost = "no address or DNS name of a server"
	for _, tc := range []struct{ args, want string }{
		{"", "a command is missing; see ovnkube pki --help"},
		{"isue", "isue: unknown command"},
		{"init", "--dir is missing"},
		{"init --dir=DIR", "has an authority already"},
		{"init --dir=DIR --days=0", "--days=0: no such lifetime; allowed: 1 to 36500"},
		{"init --dir=EMPTY --name=", "--name=: no common name"},
		{"init --dir=EMPTY --what", "--what: unknown flag"},
		{"init --dir=EMPTY more", "more: unexpected argument"},
		{"issue --dir=DIR", "--dir: unknown flag; allowed: the flags in ovnkube pki issue --help"},
		{"issue", "a command is missing; see ovnkube pki issue --help"},
		{"serve more", "more: unexpected argument"},
		{"serve --config-file=EMPTY/none", "cannot be read"},
		{"request --node=n1", "--dir is missing"},
		{"request --dir=EMPTY", "--node is missing"},
		{"issue everything", "everything: unknown command"},
		{"issue master --dir=DIR", "--name=master: "},
		{"issue northd --dir=EMPTY", "--dir=EMPTY: "},
		{"issue northd --dir=DIR --name=../nb", "--name=../nb: no name of a file"},
		{"issue northd --dir=DIR --host=a", "--host: unknown flag; allowed: the flags in ovnkube pki issue northd --help"},
		{"issue nb --dir=DIR", "--host is missing"},
		{"issue nb --dir=DIR --host=", "--host=: " + noHost},
		{"issue nb --dir=DIR --host=172.18.0.256", "--host=172.18.0.256: " + noHost},
		{"issue nb --dir=DIR --host=a,b_c", "--host=b_c: " + noHost},
		{"issue nb --dir=DIR --host=fe80::1%eth0", "--host=fe80::1%eth0: " + noHost},
		{"issue nb --dir=DIR --host=0.0.0.0", "--host=0.0.0.0: " + noHost},
		{"issue nb --dir=DIR --host=ssl:nb:6641", "--host=ssl:nb:6641: " + noHost},
		{"issue chassis --dir=DIR", "--system-id=: no system-id"},
		{"issue chassis --dir=DIR --system-id=a/b", "--system-id=a/b: no system-id"},
		{"issue chassis --dir=DIR --system-id=" + strings.Repeat("a", 65), "no system-id"},
		{"renew --dir=EMPTY", "--dir=EMPTY: "},
		{"renew --dir=DIR --days=-1", "--days=-1: no such lifetime"},
	} {
		replace := strings.NewReplacer("DIR", dir, "EMPTY", empty).Replace
		var args []string
		if tc.args != "" {
			args = strings.Split(replace(tc.args), " ")
		}
		status, out, errs := runPKIAt(pkiNow, args...)
		if status != 1 || out != "" || !strings.HasPrefix(errs, "ovnkube pki: ") || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, replace(tc.want)) {
			t.Errorf("%q: status %d, %q, %q; want %q", tc.args, status, out, errs, tc.want)
		}
	}
	after, err := os.ReadDir(dir)
	if err != nil || len(after) != len(before) {
		t.Errorf("there are %d files, there were %d (%v)", len(after), len(before), err)
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) != 0 {
		t.Errorf("the empty directory has %v (%v)", left, err)
	}
}

// The program itself has the command.
func TestPKIProgram(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if out, err := ovnkube("pki", "init", "--dir", dir).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "authority ovnkube in "+dir) {
		t.Errorf("ovnkube pki init: %v: %s", err, out)
	}
	if out, err := ovnkube("pki", "init", "--dir", dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "--dir="+dir) {
		t.Errorf("ovnkube pki init again: %v: %s", err, out)
	}
}
