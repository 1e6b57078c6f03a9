package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	healthnode "github.com/ovnkube/ovnkube/go-controller/pkg/health/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// authority issues certificates like OVN's: the names in them are not those of nodes.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.key, a.cert = a.issue(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes a certificate and its key to files.
func (a *authority) issue(t *testing.T, name string, c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "ovn " + name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"-cert.pem": {Type: "CERTIFICATE", Bytes: der}, "-privkey.pem": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(a.dir, name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

// session returns the TLS configuration of a component with a certificate of its own.
func (a *authority) session(t *testing.T, name string, peer x509.ExtKeyUsage) *tls.Config {
	t.Helper()
	a.issue(t, name, &x509.Certificate{})
	file := func(name string) string { return filepath.Join(a.dir, name) }
	c, err := sessionTLS(config.Database{Endpoints: []config.Endpoint{{Scheme: config.SchemeSSL, Host: "127.0.0.1", Port: 6641}},
		PrivKey: file(name + "-privkey.pem"), Cert: file(name + "-cert.pem"), CACert: file("ca-cert.pem")}, peer)
	if err != nil || c == nil {
		t.Fatalf("%v, %v", c, err)
	}
	return c
}

// wire is a port in front of a server: it counts the sessions, and can break them or swallow what
// they send.
type wire struct {
	listener net.Listener
	to       string

	mu       sync.Mutex
	sessions int
	silent   bool
	open     []net.Conn
}

func newWire(t *testing.T, at, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, to: to}
	t.Cleanup(func() { l.Close(); w.bounce() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			w.mu.Lock()
			w.sessions++
			w.open = append(w.open, in, out)
			w.mu.Unlock()
			go w.carry(out, in)
			go w.carry(in, out)
		}
	}()
	return w
}

func (w *wire) carry(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		silent := w.silent
		w.mu.Unlock()
		if silent {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (w *wire) bounce() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		c.Close()
	}
	w.open = nil
}

func (w *wire) silence(silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = silent
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions
}

// serveHealth runs a node's health server and returns its address.
func serveHealth(t *testing.T, c *tls.Config) netip.AddrPort {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	server := &healthnode.Server{TLS: c, Checks: map[string]func(context.Context) error{"well": func(context.Context) error { return nil }}}
	at, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() { done <- server.Run(ctx, func(a net.Addr) { at <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-at:
		return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(a.(*net.TCPAddr).Port))
	case err := <-done:
		t.Fatal(err)
		return netip.AddrPort{}
	}
}

// TestHealthSessionsAreAuthentic: each side only talks to components of its own OVN.
func TestHealthSessionsAreAuthentic(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	at := serveHealth(t, ours.session(t, "node", x509.ExtKeyUsageClientAuth))
	foreign := serveHealth(t, others.session(t, "node", x509.ExtKeyUsageClientAuth))
	for _, c := range []struct {
		name string
		to   netip.AddrPort
		tls  *tls.Config
		ok   bool
	}{
		{"ours to ours", at, ours.session(t, "master", x509.ExtKeyUsageServerAuth), true},
		{"no TLS", at, nil, false},
		{"a stranger asks", at, others.session(t, "master", x509.ExtKeyUsageServerAuth), false},
		{"a stranger answers", foreign, ours.session(t, "master2", x509.ExtKeyUsageServerAuth), false},
		{"no certificate", at, &tls.Config{InsecureSkipVerify: true}, false},
	} {
		prober := health.NewGRPC(c.to.Port(), c.tls)
		ask := func(patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return prober.Probe(ctx, "n", c.to.Addr())
		}
		var err error
		if c.ok {
			// The first check of the server may still be in progress.
			eventually.Succeeds(t, "an answer to "+c.name, func() error { return ask(time.Second) })
		} else {
			err = ask(time.Second)
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := prober.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHealthOfNodeWithClientCertificate: nodes installed by the manifests have a client
// certificate, of an authority that masters trust besides their own. A master beside its databases may have
// a certificate for one of them only.
func TestHealthOfNodeWithClientCertificate(t *testing.T) {
	d := pki.Dir(t.TempDir())
	if _, err := d.Init("test", time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1", "master"} {
		if _, err := d.Issue(name, pki.Subject{Name: name, Client: true}, time.Now(), time.Hour, false); err != nil {
			t.Fatal(err)
		}
	}
	database := func(name string) config.Database {
		f := d.Files(name)
		return config.Database{Endpoints: []config.Endpoint{{Scheme: config.SchemeSSL}}, PrivKey: f.Key, Cert: f.Cert, CACert: f.CA}
	}
	node, err := sessionTLS(database("n1"), x509.ExtKeyUsageClientAuth)
	if err != nil {
		t.Fatal(err)
	}
	at := serveHealth(t, node)
	local := config.Database{Endpoints: []config.Endpoint{{Scheme: config.SchemeUnix, Path: "/run/ovn/ovnnb_db.sock"}}}
	for name, cfg := range map[string]config.Config{
		"both with TLS":           {OVNNorth: database("master"), OVNSouth: database("master")},
		"northbound with TLS":     {OVNNorth: database("master"), OVNSouth: local},
		"only southbound has TLS": {OVNNorth: local, OVNSouth: database("master")},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Features.NodeHealthCheckPort = int(at.Port())
			asks, err := prober(cfg)
			if err != nil {
				t.Fatal(err)
			}
			eventually.Succeeds(t, "the node to answer", func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return asks.Probe(ctx, "n1", at.Addr())
			})
		})
	}
}

// TestBouncedSessionIsNoDeadNode: one session carries all probes; a broken session is reconnected
// without any notification, while silence means that the node is dead.
func TestBouncedSessionIsNoDeadNode(t *testing.T) {
	ours := newAuthority(t)
	server := serveHealth(t, ours.session(t, "node", x509.ExtKeyUsageClientAuth))
	bounced := newWire(t, "127.0.0.2:0", server.String())
	port := uint16(bounced.listener.Addr().(*net.TCPAddr).Port)
	steady := newWire(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), port).String(), server.String())
	prober := health.NewGRPC(port, ours.session(t, "master", x509.ExtKeyUsageServerAuth))
	defer prober.Close()
	tracker := health.NewTracker(prober, 10*time.Second) // a bounce takes up to half a second
	var mu sync.Mutex
	var heard []place.Reach
	tracker.Subscribe(func(node string) {
		if node == "bounced" {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, tracker.Reach(node))
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tracker.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	tracker.SetTargets(map[string][]netip.Addr{"bounced": {netip.MustParseAddr("127.0.0.2")}, "steady": {netip.MustParseAddr("127.0.0.3")}})
	eventually.True(t, "both to be reachable", func() bool { return tracker.Healthy("bounced") && tracker.Healthy("steady") })
	sessions := steady.count() // a slow machine may need more than one attempt
	for n := range 5 {
		bounced.bounce()
		eventually.True(t, "another session", func() bool { return bounced.count() >= n+2 })
	}
	mu.Lock()
	if slices.Contains(heard, place.Dead) {
		t.Errorf("a bounced session made a dead node: %v", heard)
	}
	mu.Unlock()
	if n := steady.count(); n != sessions {
		t.Errorf("%d sessions with a node that answers instead of %d, want one that stays", n, sessions)
	}
	bounced.silence(true)
	eventually.True(t, "the silent node to be dead", func() bool { return tracker.Reach("bounced") == place.Dead })
	bounced.silence(false)
	bounced.bounce()
	eventually.True(t, "the node to be back", func() bool { return tracker.Healthy("bounced") })
}
