package app

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
)

// TestExpirations: a process reports its certificates and authorities, for files with several the first that expires,
// and notices renewals. It reports nothing about files that it does not have or use.
func TestExpirations(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	day := func(n int) time.Time { return now.AddDate(0, 0, n) }
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	authority := func(days int) *pki.Authority {
		a, err := pki.NewAuthority("authority", now, day(days).Sub(now))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	write := func(name string, texts ...[]byte) {
		var all []byte
		for _, text := range texts {
			all = append(all, text...)
		}
		if err := os.WriteFile(path(name), all, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	long, longer := authority(100), authority(200)
	issue := func(days int) pki.Text {
		text, _, err := long.Ensure(pki.Text{}, pki.Subject{Name: "master", Client: true}, now, day(days).Sub(now))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	issued := func(days int) []byte { return issue(days).Cert }
	secure := []config.Endpoint{{Scheme: config.SchemeSSL}}
	cfg := config.Config{
		OVNNorth: config.Database{Endpoints: secure, Cert: path("absent"), CACert: path("nothing")},
		OVNSouth: config.Database{Endpoints: secure, Cert: path("cert"), CACert: path("ca")},
		Metrics:  config.Metrics{ServerCert: path("metrics")},
	}
	write("cert", issued(30))
	write("ca", longer.Certificate(), long.Certificate())
	write("nothing", []byte("no certificate"))
	write("metrics", issued(50))
	want := func(days map[string]int) {
		t.Helper()
		got := expirations(cfg)
		if len(got) != len(days) {
			t.Errorf("%v", got)
		}
		for name, n := range days {
			if !got[path(name)].Equal(day(n)) {
				t.Errorf("%s expires %v, want %v", name, got[path(name)], day(n))
			}
		}
	}
	want(map[string]int{"cert": 30, "ca": 100, "metrics": 50})
	write("cert", issued(90))
	want(map[string]int{"cert": 90, "ca": 100, "metrics": 50})
	combined := issue(40) // one file for the key and the certificate
	write("cert", combined.Key, combined.Cert)
	write("metrics", combined.Key, longer.Certificate(), combined.Key, combined.Cert)
	want(map[string]int{"cert": 40, "ca": 100, "metrics": 40})
	cfg.Metrics.ServerCert = path("nothing")
	write("nothing", combined.Key)
	want(map[string]int{"cert": 40, "ca": 100})
	cfg.Metrics.ServerCert = path("metrics")
	write("metrics", issued(50))
	cfg.OVNSouth.Endpoints = []config.Endpoint{{Scheme: config.SchemeUnix}}
	want(map[string]int{"metrics": 50})
}
