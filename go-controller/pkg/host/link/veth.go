package link

import (
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Veth is a pair of links: Host in the caller's namespace, Peer in another one.
type Veth struct {
	Host    string
	Peer    string
	PeerMAC string // empty: chosen by the kernel
	MTU     int    // bytes, of both ends
	Netns   string // path of the peer's namespace, e.g. /run/netns/x
}

// EnsureVeth creates a pair whose host end is up and whose peer is left down. An existing host end
// with that name is kept if it belongs to such a peer; any other link with that name is replaced.
func EnsureVeth(v Veth) error {
	ns, err := netns.GetFromPath(v.Netns)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", v.Netns, err)
	}
	defer func() { _ = ns.Close() }()
	paired, err := v.paired()
	if err != nil {
		return err
	}
	if !paired {
		if err := v.create(ns); err != nil {
			return err
		}
	}
	if v.MTU > 0 {
		if err := SetMTU(v.Host, v.MTU); err != nil {
			return err
		}
	}
	_, err = Up(v.Host)
	return err
}

// paired reports whether the two ends exist and belong to each other.
func (v Veth) paired() (bool, error) {
	l, err := get(v.Host)
	if IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	hostIndex, peerIndex := l.Attrs().Index, l.Attrs().ParentIndex
	paired := false
	err = Inside(v.Netns, func() error {
		peer, err := get(v.Peer)
		if IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		paired = peer.Type() == "veth" && peer.Attrs().Index == peerIndex && peer.Attrs().ParentIndex == hostIndex
		return nil
	})
	return paired, err
}

func (v Veth) create(ns netns.NsHandle) error {
	if err := Delete(v.Host); err != nil {
		return err
	}
	pair := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: v.Host, MTU: v.MTU},
		PeerName:      v.Peer,
		PeerNamespace: netlink.NsFd(int(ns)),
		PeerMTU:       uint32(v.MTU),
	}
	if v.PeerMAC != "" {
		mac, err := net.ParseMAC(v.PeerMAC)
		if err != nil {
			return fmt.Errorf("make veth pair %s: %w", v.Host, err)
		}
		pair.PeerHardwareAddr = mac
	}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("make veth pair %s and %s in %s: %w", v.Host, v.Peer, v.Netns, err)
	}
	return nil
}

// Inside runs f in the network namespace at path, on a thread of its own. f must not start
// goroutines that expect to be in that namespace. It returns a wrapped os.ErrNotExist if there is
// no such namespace.
func Inside(path string, f func() error) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer func() { _ = ns.Close() }()
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, so that no other goroutine ever runs
		// in this namespace.
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			if errors.Is(err, unix.EINVAL) {
				err = fmt.Errorf("it is not a network namespace: %w", err)
			}
			result <- fmt.Errorf("enter network namespace %s: %w", path, err)
			return
		}
		result <- f()
	}()
	return <-result
}
