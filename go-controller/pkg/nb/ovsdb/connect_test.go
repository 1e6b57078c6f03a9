package ovsdb_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

func TestParseAddress(t *testing.T) {
	good := "tcp:10.0.0.1:6641, ssl:[fd00::1]:6641,unix:/run/ovn/ovnnb_db.sock,tcp:db.example:6641"
	got, err := ovsdb.ParseAddress(good)
	if err != nil || len(got) != 4 || got[1] != "ssl:[fd00::1]:6641" {
		t.Errorf("ParseAddress: %q, %v", got, err)
	}
	for _, bad := range []string{"", "tcp:10.0.0.1", "tcp:10.0.0.1:0", "tcp:fd00::1:6641", "tcp::6641", "ssl:h:70000", "unix:sock", "http://x", "tcp:10.0.0.1:6641,"} {
		if got, err := ovsdb.ParseAddress(bad); err == nil {
			t.Errorf("ParseAddress(%q) = %q, want an error", bad, got)
		}
	}
}

// writers keeps applying changing states of several owners from goroutines of
// their own until done is closed; then it applies the last states.
func writers(t *testing.T, w *ovsdb.Writer, done <-chan struct{}) (wait func() map[nb.Owner][]nb.Row) {
	t.Helper()
	const n = 6
	var wg sync.WaitGroup
	var mu sync.Mutex
	last := map[nb.Owner][]nb.Row{}
	for i := range n {
		o := nb.Owner{Feature: "egressservice", Object: fmt.Sprint("ns/", i)}
		wg.Go(func() {
			for round := 0; ; round++ {
				var rows []nb.Row
				for j := range round%7 + 1 {
					rows = append(rows, policy(fmt.Sprintf("10.%d.0.%d", i, j), fmt.Sprintf("10.244.%d.2", round%5)))
				}
				mu.Lock()
				last[o] = rows
				mu.Unlock()
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				_, err := w.Apply(ctx, o, rows)
				cancel()
				if err != nil {
					t.Errorf("%s: %v", o, err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	return func() map[nb.Owner][]nb.Row {
		wg.Wait()
		return last
	}
}

// checkFresh compares a database with one that gets the same rows from scratch.
func checkFresh(t *testing.T, dump string, want map[nb.Owner][]nb.Row) {
	t.Helper()
	fresh := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: fresh.Socket()})
	apply(t, w, network, router("ovn_cluster_router"))
	for o, rows := range want {
		apply(t, w, o, rows...)
	}
	if f := fresh.Dump(); dump != f {
		t.Errorf("after all:\n%s\nfrom scratch:\n%s", dump, f)
	}
}

func TestServerDiesInTheMiddle(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	apply(t, w, network, router("ovn_cluster_router"))
	before := runtime.NumGoroutine()
	done := make(chan struct{})
	wait := writers(t, w, done)
	for i := range 10 {
		records := s.Records()
		eventually.Succeeds(t, "some writes", func() error {
			if n := s.Records() - records; n < 20 {
				return fmt.Errorf("%d so far", n)
			}
			return nil
		})
		if i%2 == 0 {
			s.Kill()
		} else {
			s.Stop()
		}
		s.Start()
	}
	close(done)
	want := wait()
	eventually.Succeeds(t, "the goroutines of old connections to end", func() error {
		if n := runtime.NumGoroutine(); n > before {
			return fmt.Errorf("%d goroutines, %d at first", n, before)
		}
		return nil
	})
	checkFresh(t, s.Dump(), want)
	for o, rows := range want {
		if stats := apply(t, w, o, rows...); !stats.Zero() {
			t.Errorf("no-op for %s wrote %+v", o, stats)
		}
	}
}

func TestApplyWithoutServer(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := ovsdb.Connect(ctx, ovsdb.Config{Address: s.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	w := ovsdb.NewWriter(c)
	if !c.Connected() || c.Endpoint() != s.Socket() {
		t.Errorf("connected %v to %q", c.Connected(), c.Endpoint())
	}
	s.Kill()
	eventually.Succeeds(t, "the loss to be noticed", func() error {
		if c.Connected() {
			return errors.New("still connected")
		}
		return nil
	})
	short, cancelShort := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancelShort()
	if _, err := w.Apply(short, network, []nb.Row{router("a")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Apply without a server: %v, want DeadlineExceeded", err)
	}
	// A waiting Apply completes when the server is back; an abandoned one is not carried
	// out.
	result := make(chan error, 1)
	go func() {
		_, err := w.Apply(ctx, network, []nb.Row{router("b")})
		result <- err
	}()
	s.Start()
	if err := <-result; err != nil {
		t.Errorf("Apply that waited: %v", err)
	}
	if list := s.Nbctl("lr-list"); strings.Contains(list, "(a)") || !strings.Contains(list, "(b)") {
		t.Errorf("want router b alone:\n%s", list)
	}
	c.Close()
	if _, err := w.Apply(ctx, network, nil); err == nil {
		t.Error("Apply after Close succeeded")
	}
}

// TestAbandonedApplies abandons many calls of Apply in progress: the one that is awaited
// must still win.
func TestAbandonedApplies(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	apply(t, w, network, router("ovn_cluster_router"))
	state := func(i int) []nb.Row {
		var rows []nb.Row
		for j := range i % 40 {
			rows = append(rows, policy(fmt.Sprintf("10.244.0.%d", j), fmt.Sprintf("10.244.%d.2", i%200)))
		}
		return rows
	}
	for i := range 300 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%20)*100*time.Microsecond)
		_, err := w.Apply(ctx, svc, state(i))
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if i%30 != 0 {
			continue
		}
		apply(t, w, svc, state(i)...)
		if n := strings.Count(s.Nbctl("lr-policy-list", "ovn_cluster_router"), fmt.Sprintf("10.244.%d.2", i%200)); n != i%40 {
			t.Fatalf("after state %d: %d policies, want %d", i, n, i%40)
		}
		if stats := apply(t, w, svc, state(i)...); !stats.Zero() {
			t.Fatalf("no-op wrote %+v", stats)
		}
	}
}

func TestConnectGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := ovsdb.Connect(ctx, ovsdb.Config{Address: "unix:/nonexistent/sock"})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "/nonexistent/sock") {
		t.Errorf("Connect: %v, want DeadlineExceeded and the reason", err)
	}
}

// TestFrozenServer uses a server that keeps its connections open but does not answer: only
// probes can detect this.
func TestFrozenServer(t *testing.T) {
	one, other := ovsdbtest.StartNB(t), ovsdbtest.StartNB(t)
	client, err := ovsdb.Connect(t.Context(), ovsdb.Config{
		Address:       one.Socket() + "," + other.Socket(),
		ProbeInterval: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w := ovsdb.NewWriter(client)
	apply(t, w, network, router("a"))
	if client.Endpoint() == other.Socket() {
		one, other = other, one
	}
	one.Freeze()
	defer one.Thaw()
	// The listening socket of the frozen server still accepts connections, so the client
	// must move on to the other address.
	apply(t, w, network, router("b"))
	if list := other.Nbctl("lr-list"); !strings.Contains(list, "(b)") {
		t.Errorf("router b is not on the other server:\n%s", list)
	}
}

// TestFrozenLeader: the leader of a cluster hangs. That another one was elected tells of it long
// before a probe would.
func TestFrozenLeader(t *testing.T) {
	c := ovsdbtest.StartCluster(t, 3)
	client, err := ovsdb.Connect(t.Context(), ovsdb.Config{Address: c.Address(), ProbeInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w := ovsdb.NewWriter(client)
	apply(t, w, network, router("a"))
	was := client.Endpoint()
	for _, s := range c.Servers {
		if s.Socket() == was {
			s.Freeze()
			defer s.Thaw()
		}
	}
	apply(t, w, network, router("b"))
	if now := client.Endpoint(); now == was {
		t.Errorf("still connected to %s", now)
	}
}

func TestLeaderChange(t *testing.T) {
	c := ovsdbtest.StartCluster(t, 3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: c.Address()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w := ovsdb.NewWriter(client)
	c.Leader().Nbctl("init")
	apply(t, w, network, router("ovn_cluster_router"))
	onLeader := func() {
		t.Helper()
		eventually.Succeeds(t, "the writer to follow the leader", func() error {
			if got, want := client.Endpoint(), c.Leader().Socket(); got != want {
				return fmt.Errorf("connected to %q, the leader is %q", got, want)
			}
			return nil
		})
	}
	onLeader()
	done := make(chan struct{})
	wait := writers(t, w, done)
	for i := range 4 {
		old := c.Leader()
		if i%2 == 0 {
			old.Kill()
		} else {
			old.Stop() // transfers leadership
		}
		onLeader()
		old.Start()
	}
	close(done)
	want := wait()
	checkFresh(t, c.Leader().Dump(), want)
}

func TestTLS(t *testing.T) {
	certs, others := ovsdbtest.NewCertificates(t), ovsdbtest.NewCertificates(t)
	s := ovsdbtest.StartNB(t, ovsdbtest.WithTLS(certs))
	cfg := ovsdb.Config{Address: s.Address(), PrivateKey: certs.Key, Certificate: certs.Cert, CACert: certs.CA}
	w := connect(t, cfg)
	apply(t, w, network, router("a"))
	s.Kill()
	s.Start()
	apply(t, w, network, router("b"))
	if list := s.Nbctl("lr-list"); !strings.Contains(list, "(b)") {
		t.Errorf("router b is missing:\n%s", list)
	}

	for name, bad := range map[string]ovsdb.Config{
		"CA that did not sign the server": {Address: s.Address(), PrivateKey: certs.Key, Certificate: certs.Cert, CACert: others.CA},
		"name the server does not bear":   {Address: s.Address(), PrivateKey: certs.Key, Certificate: certs.Cert, CACert: certs.CA, ServerName: "nb.example"},
		"certificate of another CA":       {Address: s.Address(), PrivateKey: others.Key, Certificate: others.Cert, CACert: certs.CA},
		"missing file":                    {Address: s.Address(), PrivateKey: certs.Key, Certificate: certs.Cert, CACert: "/nonexistent"},
		"no certificates":                 {Address: s.Address()},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		if c, err := ovsdb.Connect(ctx, bad); err == nil {
			t.Errorf("%s: connected", name)
			c.Close()
		}
		cancel()
	}
}

func TestTCP(t *testing.T) {
	s := ovsdbtest.StartNB(t, ovsdbtest.WithTCP())
	w := connect(t, ovsdb.Config{Address: "unix:/nonexistent/sock," + s.Address()})
	apply(t, w, network, nb.Row{ID: "a", Model: &nbdb.LogicalSwitch{Name: "a"}})
	if list := s.Nbctl("ls-list"); !strings.Contains(list, "(a)") {
		t.Errorf("switch a is missing:\n%s", list)
	}
}
