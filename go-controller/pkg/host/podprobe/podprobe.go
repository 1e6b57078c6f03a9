package podprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
)

const (
	// datagrams is how many are sent at most, one after another.
	datagrams = 3
	// payload is the content of a datagram, so that people who look at packets recognize them.
	payload = "ovnkube probe\n"
)

// Probe describes what to send.
type Probe struct {
	Netns   string     // path of the network namespace of the pod
	Source  netip.Addr // an address of the pod
	To      netip.AddrPort
	UDP     bool          // instead of TCP
	Timeout time.Duration // how long to wait for an answer
}

// Result is the result of a probe.
type Result struct {
	// From is the source address and port.
	From netip.AddrPort
	// Err is nil if the other side answered: it accepted the connection, or sent a datagram.
	// ECONNREFUSED: it answered that nobody listens. os.ErrDeadlineExceeded: there was no answer.
	// Other errors are the kernel's, for instance that there is no route.
	Err error
	// Took is how long the answer took.
	Took time.Duration
}

// Send sends a probe; the error says why nothing was sent.
func Send(ctx context.Context, p Probe) (Result, error) {
	socket, from, err := open(p)
	if err != nil {
		return Result{}, fmt.Errorf("send as %s: %w", p.Source, err)
	}
	defer socket.Close()
	begin := time.Now()
	if err := socket.SetDeadline(begin.Add(p.Timeout)); err != nil {
		return Result{}, fmt.Errorf("send as %s: %w", p.Source, err)
	}
	defer context.AfterFunc(ctx, func() { _ = socket.SetDeadline(begin) })()
	r := Result{From: from, Err: connect(socket, p.To)}
	if p.UDP && r.Err == nil {
		r.Err = exchange(ctx, socket, begin, p.Timeout)
	}
	r.Took = time.Since(begin)
	r.Err = plain(r.Err)
	return r, nil
}

// plain returns the kernel's error without the operation that failed.
func plain(err error) error {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, os.ErrDeadlineExceeded):
		return os.ErrDeadlineExceeded
	}
	return err
}

// open creates a socket in the namespace, with a port of its own.
func open(p Probe) (*os.File, netip.AddrPort, error) {
	kind := unix.SOCK_STREAM
	if p.UDP {
		kind = unix.SOCK_DGRAM
	}
	family := unix.AF_INET6
	if p.Source.Is4() {
		family = unix.AF_INET
	}
	fd := -1
	err := link.Inside(p.Netns, func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	socket := os.NewFile(uintptr(fd), "probe")
	err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(netip.AddrPortFrom(p.Source, 0))))
	var port uint16
	if err == nil {
		port, err = portOf(fd)
	}
	if err != nil {
		socket.Close()
		return nil, netip.AddrPort{}, err
	}
	return socket, netip.AddrPortFrom(p.Source, port), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func portOf(fd int) (uint16, error) {
	switch a, err := unix.Getsockname(fd); a := a.(type) {
	case *unix.SockaddrInet4:
		return uint16(a.Port), nil
	case *unix.SockaddrInet6:
		return uint16(a.Port), nil
	default:
		return 0, os.NewSyscallError("getsockname", err)
	}
}

// connect connects the socket, and waits for success or failure.
func connect(socket *os.File, to netip.AddrPort) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	begun, result := false, error(nil)
	err = raw.Write(func(fd uintptr) bool {
		if !begun {
			begun = true
			result = unix.Connect(int(fd), sockaddr(to))
			return !errors.Is(result, unix.EINPROGRESS)
		}
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			result = os.NewSyscallError("getsockopt", err)
		case n != 0:
			result = syscall.Errno(n)
		default:
			_, result = unix.Getpeername(int(fd))
			return !errors.Is(result, unix.ENOTCONN) // a spurious wakeup
		}
		return true
	})
	return cmp.Or(err, result)
}

// exchange sends datagrams until one comes back.
func exchange(ctx context.Context, socket *os.File, begin time.Time, timeout time.Duration) error {
	for i := range datagrams {
		if _, err := socket.WriteString(payload); err != nil {
			return err
		}
		if err := socket.SetReadDeadline(begin.Add(timeout * time.Duration(i+1) / datagrams)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch _, err := socket.Read(make([]byte, 1)); {
		case errors.Is(err, io.EOF): // a datagram without content
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
	}
	return os.ErrDeadlineExceeded
}
