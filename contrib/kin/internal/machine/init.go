package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

// Setup is the first stage of a machine's first process: it sets up the machine
// around itself and executes Main. It returns only with an error, which it also
// reports to Boot.
func Setup(cluster, name, dir string) error {
	// The cgroup namespace belongs to a thread until the program is replaced.
	runtime.LockOSThread()
	report := os.NewFile(reportFD, "report")
	err := setup(Dir(dir))
	if err == nil {
		// Neither stage may leak the pipes: a closed report means success.
		unix.CloseOnExec(goFD)
		unix.CloseOnExec(reportFD)
		err = unix.Exec("/proc/self/exe", []string{"kin", MainCommand, cluster, name, dir}, os.Environ())
	}
	fmt.Fprintln(report, err)
	return err
}

func setup(d Dir) error {
	start := os.NewFile(goFD, "go")
	if _, err := io.ReadFull(start, make([]byte, 1)); err != nil {
		return fmt.Errorf("await cable: %w", err)
	}
	spec, err := d.Load()
	if err != nil {
		return err
	}
	if err := joinCgroup(spec.Cgroup, 0); err != nil {
		return err
	}
	if err := weighCgroup(spec.Cgroup, spec.CPUWeight); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("separate control groups: %w", err)
	}
	// Groups below the machine's own can have controllers only if no process
	// is in the latter.
	if err := joinCgroup(spec.Cgroup+"/init", 0); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := mountAll(spec); err != nil {
		return err
	}
	if err := passSpec(spec); err != nil {
		return err
	}
	return configureNetwork(spec)
}

// specInside is where Main finds the machine's description, since its directory is
// no longer visible by then.
const specInside = Dir("/run/kin")

func passSpec(s Spec) error { return specInside.Save(s) }

// Main is the second stage: it runs the machine's daemons until it is told to
// shut down.
func Main() error {
	spec, err := specInside.Load()
	if err != nil {
		return err
	}
	// The name that ps shows; the file was started as /proc/self/exe.
	if err := os.WriteFile("/proc/self/comm", []byte("kin-init"), 0); err != nil {
		return fmt.Errorf("set process name: %w", err)
	}
	// Programs are looked up in the machine's PATH.
	for _, setting := range spec.Env {
		if name, value, ok := strings.Cut(setting, "="); ok {
			if err := os.Setenv(name, value); err != nil {
				return fmt.Errorf("set environment: %w", err)
			}
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// Signals from a terminal or a closed session are not meant for a machine.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	supervisor, err := supervise.New(spec.Units, supervise.Options{Env: environment(spec), LogDir: supervise.LogDir})
	if err != nil {
		return err
	}
	if spec.Forward != "" {
		go func() {
			if err := forward(ctx, spec.Forward); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
	go func() {
		if err := supervisor.Serve(ctx, supervise.ControlSocket); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	supervisor.Run(ctx)
	return nil
}

// environment returns the environment of everything in the machine.
func environment(s Spec) []string {
	return append([]string{"HOME=/root", "LANG=C.UTF-8"}, s.Env...)
}

// forward forwards connections from the inherited listener to an address that
// is reachable only from this machine's network.
func forward(ctx context.Context, address string) error {
	listener, err := net.FileListener(os.NewFile(listenFD, "listener"))
	if err != nil {
		return fmt.Errorf("take over listener: %w", err)
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept connection: %w", err)
		}
		go carry(conn.(*net.TCPConn), address)
	}
}

func carry(client *net.TCPConn, address string) {
	defer client.Close()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return // the client sees a closed connection, as from a server that is down
	}
	server := conn.(*net.TCPConn)
	defer server.Close()
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.CloseWrite()
		close(done)
	}()
	_, _ = io.Copy(client, server)
	_ = client.CloseWrite()
	<-done
}
