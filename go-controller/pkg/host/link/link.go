package link

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// get finds a link.
func get(name string) (netlink.Link, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	return l, nil
}

// IsNotFound reports whether err means that a link does not exist.
func IsNotFound(err error) bool {
	var gone netlink.LinkNotFoundError
	return errors.As(err, &gone)
}

// Exists reports whether there is a link with that name.
func Exists(name string) (bool, error) {
	_, err := get(name)
	if IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// State is the state of a link.
type State struct {
	Index int // of the interface; it differs if the link was recreated
	MTU   int // bytes
	MAC   string
	Up    bool // administratively up, whether or not it has a carrier
}

// Read returns the state of a link.
func Read(name string) (State, error) {
	l, err := get(name)
	if err != nil {
		return State{}, err
	}
	a := l.Attrs()
	return State{Index: a.Index, MTU: a.MTU, MAC: a.HardwareAddr.String(), Up: a.Flags&net.FlagUp != 0}, nil
}

// MAC returns the hardware address of a link in lower case, e.g. "0a:58:0a:f4:01:02".
func MAC(name string) (string, error) {
	l, err := get(name)
	if err != nil {
		return "", err
	}
	return l.Attrs().HardwareAddr.String(), nil
}

// Up sets a link up and reports whether it was down, in which case it has lost its routes.
func Up(name string) (wasDown bool, err error) {
	l, err := get(name)
	if err != nil {
		return false, err
	}
	if l.Attrs().Flags&net.FlagUp != 0 {
		return false, nil
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return true, fmt.Errorf("set link %s up: %w", name, err)
	}
	return true, nil
}

// SetMTU sets the MTU of a link, in bytes.
func SetMTU(name string, mtu int) error {
	l, err := get(name)
	if err != nil || l.Attrs().MTU == mtu {
		return err
	}
	if err := netlink.LinkSetMTU(l, mtu); err != nil {
		return fmt.Errorf("set the MTU of link %s to %d: %w", name, mtu, err)
	}
	return nil
}

// SetMAC sets the hardware address of a link.
func SetMAC(name, mac string) error {
	want, err := net.ParseMAC(mac)
	if err != nil {
		return fmt.Errorf("set the address of link %s: %w", name, err)
	}
	l, err := get(name)
	if err != nil || l.Attrs().HardwareAddr.String() == want.String() {
		return err
	}
	if err := netlink.LinkSetHardwareAddr(l, want); err != nil {
		return fmt.Errorf("set the address of link %s to %s: %w", name, mac, err)
	}
	return nil
}

// Delete removes a link; it is not an error if it does not exist.
func Delete(name string) error {
	l, err := get(name)
	if IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := netlink.LinkDel(l); err != nil && !IsNotFound(err) {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	return nil
}

// Wait waits until a link with that name exists, e.g. one that ovs-vswitchd creates.
func Wait(ctx context.Context, name string) error {
	changed := make(chan struct{}, 1)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := Watch(watching, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}); err != nil {
		return err
	}
	for {
		if ok, err := Exists(name); ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for link %s: %w", name, ctx.Err())
		}
	}
}

// derived are the types of links that take the MAC address of another link.
var derived = map[string]bool{"vlan": true, "macvlan": true, "macvtap": true, "ipvlan": true, "bridge": true, "openvswitch": true, "tun": true, "tuntap": true}

// WithMAC returns the names of the links that have this MAC address as their own, except for the
// link named except.
func WithMAC(mac, except string) ([]string, error) {
	all, err := Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	bonds := map[int]bool{}
	for _, l := range all {
		bonds[l.Attrs().Index] = l.Type() == "bond"
	}
	var out []string
	for _, l := range all {
		a := l.Attrs()
		// Members of a bond have its address, and the bond is the uplink.
		if a.HardwareAddr.String() == mac && a.Name != except && !derived[l.Type()] && !bonds[a.MasterIndex] {
			out = append(out, a.Name)
		}
	}
	return out, nil
}
