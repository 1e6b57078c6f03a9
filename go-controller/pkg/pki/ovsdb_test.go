package pki_test

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

var (
	database = pki.Subject{
		Name: "nb", DNS: []string{"nb.example"}, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Server: true, Client: true,
	}
	client = pki.Subject{Name: "master", Client: true}
)

// files makes a certificate that is currently valid.
func files(t *testing.T, d pki.Dir, name string, s pki.Subject) pki.Files {
	t.Helper()
	if _, err := d.Issue(name, s, time.Now(), daily, false); err != nil {
		t.Fatal(err)
	}
	return d.Files(name)
}

func authorityNow(t *testing.T) pki.Dir {
	t.Helper()
	d := pki.Dir(t.TempDir())
	if _, err := d.Init("test", time.Now(), 10*daily); err != nil {
		t.Fatal(err)
	}
	return d
}

// withFiles makes a database listen with a certificate.
func withFiles(f pki.Files) ovsdbtest.Option {
	return ovsdbtest.WithTLS(&ovsdbtest.Certificates{Key: f.Key, Cert: f.Cert, CA: f.CA})
}

func ctl(program, address string, f pki.Files, args ...string) *exec.Cmd {
	return exec.Command(program, append([]string{
		"--db=" + address, "--timeout=30", "--private-key=" + f.Key, "--certificate=" + f.Cert, "--ca-cert=" + f.CA,
	}, args...)...)
}

// listening waits until a server accepts connections, since ovn-nbctl and ovn-sbctl try only once.
func listening(t *testing.T, address string) string {
	t.Helper()
	eventually.Succeeds(t, address+" to be listened at", func() error {
		c, err := net.Dial("tcp", strings.TrimPrefix(address, "ssl:"))
		if err != nil {
			return err
		}
		return c.Close()
	})
	return address
}

// refused runs ovn-nbctl, which must be refused.
func refused(t *testing.T, address string, f pki.Files, why string) {
	t.Helper()
	out, err := ctl("ovn-nbctl", address, f, "--no-leader-only", "ls-add", "intruder").CombinedOutput()
	if err == nil || !strings.Contains(string(out), why) {
		t.Errorf("ovn-nbctl: %v, %q, want to be refused: %s", err, out, why)
	}
}

func TestDatabase(t *testing.T) {
	d, other := authorityNow(t), authorityNow(t)
	nb, good, foreign := files(t, d, "nb", database), files(t, d, "master", client), files(t, other, "master", client)
	s := ovsdbtest.StartNB(t, withFiles(nb))
	listening(t, s.Address())
	if out, err := ctl("ovn-nbctl", s.Address(), good, "ls-add", "guest").CombinedOutput(); err != nil {
		t.Errorf("ovn-nbctl with a certificate of the authority: %v: %s", err, out)
	}
	mixed := pki.Files{Key: foreign.Key, Cert: foreign.Cert, CA: good.CA} // trusts the server, which does not trust it
	refused(t, s.Address(), mixed, "database connection failed")
	refused(t, s.Address(), foreign, "certificate verify failed")

	cfg := ovsdb.Config{Address: s.Address(), PrivateKey: good.Key, Certificate: good.Cert, CACert: good.CA}
	for _, name := range []string{"", "nb.example", "127.0.0.1"} {
		cfg.ServerName = name
		if err := connect(t, cfg, time.Minute); err != nil {
			t.Errorf("server name %q: %v", name, err)
		}
	}
	for _, name := range []string{"sb.example", "127.0.0.2", "nb"} {
		cfg.ServerName = name
		eventually.Succeeds(t, "the server name to be looked at", func() error {
			err := connect(t, cfg, 500*time.Millisecond)
			if err == nil {
				t.Fatalf("server name %q is accepted", name)
			}
			if !strings.Contains(err.Error(), "x509: certificate is") {
				return err // the handshake took longer
			}
			return nil
		})
	}
	if list := s.Nbctl("ls-list"); !strings.Contains(list, "(guest)") || strings.Contains(list, "intruder") {
		t.Errorf("want switch guest alone:\n%s", list)
	}
}

func connect(t *testing.T, cfg ovsdb.Config, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := ovsdb.Connect(ctx, cfg)
	if err == nil {
		c.Close()
	}
	return err
}

// A client's certificate cannot be used to pose as a database.
func TestClientIsNoDatabase(t *testing.T) {
	d := authorityNow(t)
	good := files(t, d, "master", client)
	s := ovsdbtest.StartNB(t, withFiles(files(t, d, "chassis", chassis)))
	listening(t, s.Address())
	refused(t, s.Address(), good, "certificate verify failed")
	cfg := ovsdb.Config{Address: s.Address(), PrivateKey: good.Key, Certificate: good.Cert, CACert: good.CA}
	eventually.Succeeds(t, "the use of the certificate to be looked at", func() error {
		err := connect(t, cfg, 500*time.Millisecond)
		if err == nil {
			t.Fatal("ovnkube takes a chassis for a database")
		}
		if !strings.Contains(err.Error(), "incompatible key usage") {
			return err // the handshake took longer
		}
		return nil
	})
}

// A renewed certificate is accepted with the previous key.
func TestRenewedForDatabase(t *testing.T) {
	d := authorityNow(t)
	nb, good := files(t, d, "nb", database), files(t, d, "master", client)
	before := read(t, good.Cert)
	certs, err := d.Renew(time.Now(), 5*daily)
	if err != nil || len(certs) != 2 || !certs[0].Renewed || !certs[1].Renewed || read(t, good.Cert) == before {
		t.Fatalf("Renew: %+v, %v", certs, err)
	}
	s := ovsdbtest.StartNB(t, withFiles(nb))
	listening(t, s.Address())
	if out, err := ctl("ovn-nbctl", s.Address(), good, "ls-list").CombinedOutput(); err != nil {
		t.Errorf("ovn-nbctl with a renewed certificate: %v: %s", err, out)
	}
}

// With the role ovn-controller a chassis writes only its own rows, by its common name.
func TestChassisRole(t *testing.T) {
	d := authorityNow(t)
	mine := files(t, d, "chassis", chassis)
	nb, sb := ovsdbtest.StartNB(t), ovsdbtest.StartSB(t, withFiles(files(t, d, "sb", database)))
	startNorthd(t, nb, sb)
	nb.Nbctl("--wait=sb", "sync") // ovn-northd writes the permissions of the role

	port := ovsdbtest.FreePort(t)
	admin(t, sb, "set-connection", "role=ovn-controller", "pssl:"+port+":127.0.0.1")
	if out, err := sb.Appctl("ovsdb-server/add-remote", "db:OVN_Southbound,SB_Global,connections"); err != nil {
		t.Fatalf("add remote: %v: %s", err, out)
	}
	address := listening(t, "ssl:127.0.0.1:"+port)
	if out, err := ctl("ovn-sbctl", address, mine, "chassis-add", chassis.Name, "geneve", "172.18.0.3").CombinedOutput(); err != nil {
		t.Errorf("a chassis adds itself: %v: %s", err, out)
	}
	out, err := ctl("ovn-sbctl", address, mine, "chassis-add", "another", "geneve", "172.18.0.4").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "RBAC rules for client") {
		t.Errorf("a chassis adds another one: %v: %s", err, out)
	}
	if list := admin(t, sb, "--bare", "--columns=name", "list", "Chassis"); strings.TrimSpace(list) != chassis.Name {
		t.Errorf("chassis %q, want %q", list, chassis.Name)
	}
}

// admin runs ovn-sbctl on the socket of a database.
func admin(t *testing.T, sb *ovsdbtest.Server, args ...string) string {
	t.Helper()
	out, err := exec.Command("ovn-sbctl", append([]string{"--db=" + sb.Socket(), "--timeout=30"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ovn-sbctl %s: %v: %s", args, err, out)
	}
	return string(out)
}

func startNorthd(t *testing.T, nb, sb *ovsdbtest.Server) {
	t.Helper()
	cmd := exec.Command("ovn-northd", "-vconsole:warn", "-vsyslog:off", "-vfile:off",
		"--unixctl="+filepath.Join(t.TempDir(), "ctl"), "--ovnnb-db="+nb.Socket(), "--ovnsb-db="+sb.Socket())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}
