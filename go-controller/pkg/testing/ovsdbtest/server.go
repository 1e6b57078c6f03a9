package ovsdbtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// Schemas of the installed packages.
const (
	NorthboundSchema = "/usr/share/ovn/ovn-nb.ovsschema"
	SouthboundSchema = "/usr/share/ovn/ovn-sb.ovsschema"
)

// Server is an ovsdb-server process with one database. It may be killed and restarted; the database is kept.
type Server struct {
	t       testing.TB
	dir     string
	db      string   // database file
	remotes []string // besides the unix socket
	tls     *Certificates
	cmd     *exec.Cmd
	done    chan struct{}
	log     *bytes.Buffer
	mounted bool // a disk of its own
}

// Option changes how a server is started.
type Option func(*Server)

// WithTCP makes the server listen on a free tcp port of 127.0.0.1 as well.
func WithTCP() Option {
	return func(s *Server) { s.remotes = append(s.remotes, "ptcp:"+FreePort(s.t)+":127.0.0.1") }
}

// WithTLS makes the server listen on a free port of 127.0.0.1 with TLS as well, and require a client certificate of
// the same CA.
func WithTLS(c *Certificates) Option {
	return func(s *Server) {
		s.tls = c
		s.remotes = append(s.remotes, "pssl:"+FreePort(s.t)+":127.0.0.1")
	}
}

// WithSmallDisk puts the database on a disk of its own, which can be filled.
func WithSmallDisk() Option {
	return func(s *Server) {
		s.t.Helper()
		if err := unix.Mount("tmpfs", s.dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk)); err != nil {
			s.t.Fatalf("mount: %v", err)
		}
		s.mounted = true
	}
}

// smallDisk is the size of a small disk, in bytes.
const smallDisk = 3 << 20

// FillDisk fills the small disk, and returns what empties it again.
func (s *Server) FillDisk() func() {
	s.t.Helper()
	full := filepath.Join(s.dir, "full")
	if err := os.WriteFile(full, make([]byte, smallDisk), 0o600); !errors.Is(err, unix.ENOSPC) {
		s.t.Fatalf("fill the disk: %v", err)
	}
	return func() {
		if err := os.Remove(full); err != nil {
			s.t.Error(err)
		}
	}
}

// StartNB runs a northbound database until the test ends. It is empty except for the NB_Global row, which the first
// ovn-nbctl or northd would add.
func StartNB(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := StartBlankNB(t, opts...)
	s.Nbctl("init")
	return s
}

// StartBlankNB runs a northbound database without any rows.
func StartBlankNB(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return start(t, NorthboundSchema, opts...)
}

// StartSB runs an empty southbound database until the test ends.
func StartSB(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return start(t, SouthboundSchema, opts...)
}

// StartRelay runs a relay of a southbound database until the test ends, and waits until it has a copy of the
// database.
func StartRelay(t testing.TB, of *Server) *Server {
	t.Helper()
	const database = "OVN_Southbound"
	s := newServer(t)
	s.db = "relay:" + database + ":" + of.Socket()
	s.Start()
	eventually.Succeeds(t, "the relay to have its database", func() error {
		return exec.Command("ovsdb-client", "--timeout=5", "get-schema", s.Socket(), database).Run()
	})
	return s
}

func start(t testing.TB, schema string, opts ...Option) *Server {
	t.Helper()
	s := newServer(t)
	for _, o := range opts {
		o(s)
	}
	run(t, "ovsdb-tool", "create", s.db, schema)
	s.Start()
	return s
}

func newServer(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovsdb") // short: a socket's path has at most 108 bytes
	if err != nil {
		t.Fatalf("make directory: %v", err)
	}
	s := &Server{t: t, dir: dir, db: filepath.Join(dir, "db"), log: &bytes.Buffer{}}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("ovsdb-server in %s said:\n%s", dir, s.log)
		}
		if s.mounted {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		}
		_ = os.RemoveAll(dir)
	})
	return s
}

// Socket returns the address of the unix socket: "unix:/...".
func (s *Server) Socket() string { return "unix:" + s.socketPath() }

// Address returns the address of the TCP or TLS port, or else of the unix socket.
func (s *Server) Address() string {
	if len(s.remotes) == 0 {
		return s.Socket()
	}
	parts := strings.SplitN(s.remotes[len(s.remotes)-1], ":", 3) // pssl:PORT:IP
	return fmt.Sprintf("%s:%s:%s", parts[0][1:], parts[2], parts[1])
}

// PID returns the process id of the running server.
func (s *Server) PID() int { return s.cmd.Process.Pid }

func (s *Server) socketPath() string { return filepath.Join(s.dir, "sock") }

// Start runs the server on the existing database and waits until it responds.
func (s *Server) Start() {
	s.t.Helper()
	args := []string{
		"--no-chdir", "-vconsole:warn", "-vsyslog:off", "-vfile:off",
		"--unixctl=" + filepath.Join(s.dir, "ctl"), "--remote=punix:" + s.socketPath(),
	}
	for _, r := range s.remotes {
		args = append(args, "--remote="+r)
	}
	if s.tls != nil {
		args = append(args, "--private-key="+s.tls.Key, "--certificate="+s.tls.Cert, "--ca-cert="+s.tls.CA)
	}
	_ = os.Remove(s.socketPath())
	s.cmd = exec.Command("ovsdb-server", append(args, s.db)...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start ovsdb-server: %v", err)
	}
	cmd, done := s.cmd, make(chan struct{})
	s.done = done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	eventually.Succeeds(s.t, "ovsdb-server to listen", func() error {
		c, err := net.Dial("unix", s.socketPath())
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// Kill kills the server, as a crash would.
func (s *Server) Kill() { s.signal(syscall.SIGKILL) }

// Stop shuts the server down gracefully.
func (s *Server) Stop() { s.signal(syscall.SIGTERM) }

func (s *Server) signal(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	<-s.done
	s.cmd = nil
}

// Freeze suspends the process: its sockets stay open and nothing responds. Thaw resumes it.
func (s *Server) Freeze() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw resumes the process after Freeze.
func (s *Server) Thaw() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// Records returns the number of transactions in the database file of a standalone server. Transactions that changed
// nothing are not in it.
func (s *Server) Records() int {
	s.t.Helper()
	data, err := os.ReadFile(s.db)
	if err != nil {
		s.t.Fatalf("read database: %v", err)
	}
	return bytes.Count(data, []byte("\nOVSDB JSON "))
}

// Journal returns the database file of a standalone server: its transactions, in order.
func (s *Server) Journal() string {
	s.t.Helper()
	data, err := os.ReadFile(s.db)
	if err != nil {
		s.t.Fatalf("read database: %v", err)
	}
	return string(data)
}

// RecordsOf returns the number of transactions that changed a table.
func (s *Server) RecordsOf(table string) int {
	s.t.Helper()
	data, err := os.ReadFile(s.db)
	if err != nil {
		s.t.Fatalf("read database: %v", err)
	}
	n := 0
	for _, record := range bytes.Split(data, []byte("\nOVSDB JSON "))[1:] {
		if bytes.Contains(record, []byte(`"`+table+`":{`)) {
			n++
		}
	}
	return n
}

// Nbctl runs ovn-nbctl on the server and returns its output.
func (s *Server) Nbctl(args ...string) string {
	s.t.Helper()
	return run(s.t, "ovn-nbctl", append([]string{"--db=" + s.Socket(), "--no-leader-only", "--timeout=30"}, args...)...)
}

// Appctl sends a command to the server's control socket.
func (s *Server) Appctl(args ...string) (string, error) {
	out, err := exec.Command("ovs-appctl", append([]string{"-t", filepath.Join(s.dir, "ctl")}, args...)...).CombinedOutput()
	return string(out), err
}

func run(t testing.TB, command string, args ...string) string {
	t.Helper()
	cmd := exec.Command(command, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return string(out)
}

// FreePort returns a TCP port on which nothing listens, and which neither another call in this process nor the
// kernel chooses until a server listens on it: the kernel takes the ports of connections from 32768 on.
func FreePort(t testing.TB) string {
	t.Helper()
	const first, ports = 10000, 20000
	var err error
	for range ports {
		port := strconv.Itoa(first + int((arbitrary+portsTried.Add(1))%ports))
		var l net.Listener
		if l, err = net.Listen("tcp", ":"+port); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatalf("find a free port: %v", err)
	return ""
}

// FreePort tries one port after the other, from an arbitrary one in each process.
var (
	arbitrary  = rand.Uint64N(1 << 32)
	portsTried atomic.Uint64
)

// Edit runs a transaction, given as the elements of its JSON array after the database's name, on the database file
// of a stopped server.
func (s *Server) Edit(operations string) {
	s.t.Helper()
	out := run(s.t, "ovsdb-tool", "transact", s.db, `["OVN_Northbound",`+operations+`]`)
	if strings.Contains(out, `"error"`) {
		s.t.Fatalf("edit refused: %s", out)
	}
}
