package ask

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fresh makes a network namespace with a loopback interface, which exists until the test ends.
func fresh(t *testing.T) Namespace {
	t.Helper()
	fd := -1
	err := Namespace("/proc/thread-self/ns/net").Do(func() error { // which returns the thread afterwards
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := loopbackUp(); err != nil {
			return err
		}
		var err error
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatalf("make a network namespace (this test needs root): %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return Namespace(fmt.Sprintf("/proc/self/fd/%d", fd))
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// serve answers by HTTP and UDP in the namespace, in both families, and returns the port.
func serve(t *testing.T, ns Namespace) uint16 {
	t.Helper()
	var web net.Listener
	var datagrams net.PacketConn
	err := ns.Do(func() (err error) {
		if web, err = net.Listen("tcp", ":0"); err == nil {
			datagrams, err = net.ListenPacket("udp", web.Addr().String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /who", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "me "+r.Header.Get("Authorization")) })
	mux.HandleFunc("GET /never", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(web) }()
	go func() {
		for in := make([]byte, 64); ; {
			n, client, err := datagrams.ReadFrom(in)
			if err != nil {
				return
			}
			_, _ = datagrams.WriteTo(append([]byte("me"), strings.Repeat(" ", n)...), client)
		}
	}()
	t.Cleanup(func() { _ = errors.Join(server.Close(), datagrams.Close()) })
	return netip.MustParseAddrPort(web.Addr().String()).Port()
}

// run returns the output of a command.
func run(t *testing.T, ns Namespace, args ...string) (string, error) {
	var out strings.Builder
	err := Run(t.Context(), ns, &out, args[0], args[1:]...)
	return out.String(), err
}

func TestAnswers(t *testing.T) {
	ns := fresh(t)
	port := serve(t, ns)
	for _, host := range []string{"127.0.0.1", "::1"} {
		at := netip.AddrPortFrom(netip.MustParseAddr(host), port).String()
		url := "http://" + at
		both, err := json.Marshal(map[string]string{url + "/who": "me ", url + "/other": "404 Not Found: 404 page not found\n"})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []struct {
			want string
			args []string
		}{
			{"me \n", []string{"get", url + "/who"}},
			{"me \nme \n", []string{"get", "-count", "2", url + "/who"}},
			{"me Bearer key\n", []string{"get", "-token", "key", url + "/who"}},
			{string(both) + "\n", []string{"survey", url + "/who", url + "/other"}},
			{"me\n", []string{"ask", "-from", "20000", at}},
			{"me\n", []string{"chase", "-from", "20000", "-until", "me", at}},
		} {
			if have, err := run(t, ns, q.args...); err != nil || have != q.want {
				t.Errorf("%q: %q, %v, want %q", q.args, have, err, q.want)
			}
		}
		for _, args := range [][]string{{"get", url + "/who"}, {"ask", at}} {
			if have, err := run(t, "", args...); err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("%q in another namespace: %q, %v", args, have, err)
			}
		}
	}
	assertNothingLeft(t, ns)
}

func TestErrors(t *testing.T) {
	ns := fresh(t)
	port := serve(t, ns)
	for _, q := range []struct {
		name, want string
		args       []string
	}{
		{"no answer", "Client.Timeout exceeded while awaiting headers", []string{"get", "-timeout", "50ms", fmt.Sprintf("http://127.0.0.1:%d/never", port)}},
		{"no connection", "Client.Timeout exceeded while awaiting headers", []string{"get", "-timeout", "50ms", "http://" + full(t, ns) + "/who"}},
		{"no server", "connection refused", []string{"get", "http://127.0.0.1:1/who"}},
		{"no server by UDP", "connection refused", []string{"ask", "127.0.0.1:1"}},
		{"no route", "network is unreachable", []string{"get", "http://192.0.2.1/who"}},
		{"no success", "404 Not Found", []string{"get", fmt.Sprintf("http://127.0.0.1:%d/other", port)}},
		{"a name", "not an IP address", []string{"get", fmt.Sprintf("http://localhost:%d/who", port)}},
		{"a zone", "not an IP address", []string{"ask", fmt.Sprintf("[fe80::1%%lo]:%d", port)}},
		{"no such command", "unknown command", []string{"serve"}},
	} {
		if have, err := run(t, ns, q.args...); err == nil || !strings.Contains(err.Error(), q.want) || have != "" {
			t.Errorf("%s: %q, %v, want %q", q.name, have, err, q.want)
		}
	}
	assertNothingLeft(t, ns)
	if _, err := run(t, "/proc/0/ns/net", "get", "http://127.0.0.1:1/who"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a namespace that does not exist: %v", err)
	}
}

// A caller that does not wait any longer gets its own error, and leaves nothing behind.
func TestCancelled(t *testing.T) {
	ns := fresh(t)
	at := full(t, ns)
	for _, args := range [][]string{{"get", "http://" + at + "/who"}, {"chase", "-until", "me", at}} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := Run(ctx, ns, io.Discard, args[0], args[1:]...)
		if cancel(); err == nil || strings.Contains(err.Error(), "Client.Timeout") {
			t.Errorf("%q: %v", args, err)
		}
	}
	assertNothingLeft(t, ns)
}

// full returns the address of a server in the namespace that ignores further connections: it accepts none, and as many
// as its queue has place for wait.
func full(t *testing.T, ns Namespace) string {
	t.Helper()
	var address string
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
			return err
		}
		name, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		address = fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
		conn, err := net.Dial("tcp", address)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// assertNothingLeft fails the test if there are sockets in the namespace that still connect, or if a thread has stayed there.
func assertNothingLeft(t *testing.T, ns Namespace) {
	t.Helper()
	err := ns.Do(func() error {
		file, err := os.Open("/proc/thread-self/net/tcp")
		if err != nil {
			return err
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if fields := strings.Fields(lines.Text()); fields[3] == "02" { // SYN_SENT
				return fmt.Errorf("still connecting: %s", lines.Text())
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	inside, err := os.Stat(string(ns))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		// A thread may have ended meanwhile.
		if at, err := os.Stat(thread); err == nil && os.SameFile(at, inside) {
			t.Errorf("%s has stayed", thread)
		}
	}
}
