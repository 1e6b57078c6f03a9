package announce

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/vishvananda/netlink"
)

// repeats are the delays before an address is announced again, each counted from the previous
// announcement.
var repeats = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, time.Second, 3 * time.Second}

// Announcer announces addresses. The zero Announcer is ready to use.
type Announcer struct {
	mu      sync.Mutex
	running map[netip.Addr]*announcement
}

// announcement is the ongoing announcement of one address.
type announcement struct {
	stop, ended chan struct{}
}

// Start announces that addr is at a link's MAC address: immediately, and a few more times in the
// background. An error concerns the first announcement.
func (a *Announcer) Start(link string, addr netip.Addr) error {
	a.Stop(addr)
	dev, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("announce %s: find link %s: %w", addr, link, err)
	}
	s, err := open(dev.Attrs().Index)
	if err != nil {
		return fmt.Errorf("announce %s on %s: %w", addr, link, err)
	}
	messages := frames(dev.Attrs().HardwareAddr, addr)
	if err := s.send(messages); err != nil {
		s.close()
		return fmt.Errorf("announce %s on %s: %w", addr, link, err)
	}
	klog.V(2).InfoS("Announced address", "address", addr, "link", link, "mac", dev.Attrs().HardwareAddr)
	c := &announcement{stop: make(chan struct{}), ended: make(chan struct{})}
	a.mu.Lock()
	if a.running == nil {
		a.running = map[netip.Addr]*announcement{}
	}
	a.running[addr] = c
	a.mu.Unlock()
	go c.run(s, messages, addr, link)
	return nil
}

// Solicit asks once for the MAC address of a neighbour, as the host with the address from and a link's
// MAC address. Others that hear the answer learn it, too. Solicit does not wait for it.
func (a *Announcer) Solicit(link string, from, neighbour netip.Addr) error {
	dev, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("ask for %s: find link %s: %w", neighbour, link, err)
	}
	s, err := open(dev.Attrs().Index)
	if err != nil {
		return fmt.Errorf("ask for %s on %s: %w", neighbour, link, err)
	}
	defer s.close()
	if err := s.send([][]byte{question(dev.Attrs().HardwareAddr, from, neighbour)}); err != nil {
		return fmt.Errorf("ask for %s on %s: %w", neighbour, link, err)
	}
	return nil
}

// Stop stops announcing addr. Nothing is sent after it has returned.
func (a *Announcer) Stop(addr netip.Addr) {
	a.mu.Lock()
	c := a.running[addr]
	delete(a.running, addr)
	a.mu.Unlock()
	if c != nil {
		close(c.stop)
		<-c.ended
	}
}

// run repeats the announcement.
func (c *announcement) run(s socket, messages [][]byte, addr netip.Addr, link string) {
	defer close(c.ended)
	defer s.close()
	for _, pause := range repeats {
		select {
		case <-c.stop:
			return
		case <-time.After(pause):
		}
		if err := s.send(messages); err != nil {
			klog.V(2).InfoS("Address could not be announced again", "address", addr, "link", link, "reason", err.Error())
			return
		}
	}
}

// socket sends frames on one link.
type socket struct{ fd, link int }

func open(link int) (socket, error) {
	// Protocol 0: receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return socket{}, fmt.Errorf("open a packet socket: %w", err)
	}
	return socket{fd: fd, link: link}, nil
}

func (s socket) send(messages [][]byte) error {
	for _, m := range messages {
		to := &unix.SockaddrLinklayer{Ifindex: s.link, Halen: 6}
		copy(to.Addr[:], m[:6])
		if err := unix.Sendto(s.fd, m, 0, to); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

func (s socket) close() { _ = unix.Close(s.fd) }
