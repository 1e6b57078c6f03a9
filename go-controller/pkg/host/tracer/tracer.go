package tracer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/unixctl"
)

// mostOutput is the maximum output of a program, in bytes.
const mostOutput = 4 << 20

// Database is the address of the southbound database; the files are empty without TLS.
type Database struct{ Address, PrivateKey, Certificate, CACert string }

// Logical returns ovn-trace's output for a packet that enters a switch; choice is the number of the
// next hop if there are several, 0 for any.
func Logical(ctx context.Context, db Database, datapath, packet string, choice int) (string, error) {
	args := []string{"--db=" + db.Address, "--no-leader-only", "--ct=new"}
	if db.PrivateKey != "" {
		args = append(args, "--private-key="+db.PrivateKey, "--certificate="+db.Certificate, "--ca-cert="+db.CACert)
	}
	if choice > 0 {
		args = append(args, fmt.Sprintf("--select-id=%d", choice))
	}
	cmd := exec.CommandContext(ctx, "ovn-trace", append(args, "--", datapath, packet)...)
	out, stderr := &bounded{most: mostOutput}, &bounded{most: 4096}
	cmd.Stdout, cmd.Stderr = out, stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("run ovn-trace: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	if text := out.String(); strings.Contains(text, "ingress(") {
		return text, nil
	}
	return "", fmt.Errorf("run ovn-trace: it does not follow the packet: %s", strings.TrimSpace(out.String()[:min(out.Len(), 4096)]))
}

// bounded keeps the beginning of what is written, and refuses the rest.
type bounded struct {
	bytes.Buffer
	most int
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		return 0, io.ErrShortBuffer
	}
	return b.Buffer.Write(p)
}

// Bridge returns ovs-vswitchd's trace of a packet that enters a bridge.
func Bridge(ctx context.Context, runDir, bridge, flow string) (string, error) {
	return unixctl.Daemon{RunDir: runDir, Name: "ovs-vswitchd"}.Call(ctx, "ofproto/trace", bridge, flow)
}

// Packet is a packet that the kernel would forward.
type Packet struct {
	Source, Destination netip.Addr
	In                  string // interface
	Mark                uint32
}

// Route is what the kernel would do with a packet.
type Route struct {
	Interface string
	Gateway   netip.Addr
	Table     int
	Local     bool
	// Source is the source address that masquerading on the interface would use.
	Source netip.Addr
	// Unroutable says why there is no route.
	Unroutable string
	// Rules are the ip rules that match on the source of the packet.
	Rules []string
}

// Lookup asks the kernel for the route of a packet.
func Lookup(p Packet) (Route, error) {
	rules, err := rulesOf(p.Source)
	if err != nil {
		return Route{}, err
	}
	out := Route{Rules: rules}
	// The lookup is for a packet that came in by In: the kernel would find a different route for a
	// packet of its own if the source is local, and none if it is not.
	options := &netlink.RouteGetOptions{Iif: p.In, SrcAddr: p.Source.AsSlice(), Mark: p.Mark}
	found, err := netlink.RouteGetWithOptions(p.Destination.AsSlice(), options)
	switch {
	case link.IsNotFound(err):
		return out, fmt.Errorf("look up the route from %s: %w", p.In, err)
	case err != nil: // that the kernel finds no route is an answer
		out.Unroutable = err.Error()
		return out, nil //nolint:nilerr
	case len(found) == 0:
		return out, errors.New("look up a route: the kernel answers nothing")
	}
	r := found[0]
	out.Table, out.Local = r.Table, r.Type == unix.RTN_LOCAL
	out.Gateway, _ = netip.AddrFromSlice(r.Gw)
	out.Gateway = out.Gateway.Unmap()
	if out.Local {
		return out, nil
	}
	dev, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return out, fmt.Errorf("find the interface of a route: %w", err)
	}
	out.Interface = dev.Attrs().Name
	if src, ok := netip.AddrFromSlice(r.Src); ok && src.Unmap() != p.Source {
		out.Source = src.Unmap()
	}
	if !out.Source.IsValid() {
		out.Source, err = addressOf(dev, p.Source.Is4())
	}
	return out, err
}

// addressOf returns the first address of an interface that others can reply to.
func addressOf(dev netlink.Link, v4 bool) (netip.Addr, error) {
	family := netlink.FAMILY_V6
	if v4 {
		family = netlink.FAMILY_V4
	}
	addrs, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(dev, family) })
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list the addresses of %s: %w", dev.Attrs().Name, err)
	}
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !addr.Unmap().IsLinkLocalUnicast() {
			return addr.Unmap(), nil
		}
	}
	return netip.Addr{}, nil
}

// rulesOf returns the ip rules that match on a source, by priority.
func rulesOf(source netip.Addr) ([]string, error) {
	family := netlink.FAMILY_V6
	if source.Is4() {
		family = netlink.FAMILY_V4
	}
	all, err := link.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
	if err != nil {
		return nil, fmt.Errorf("list ip rules: %w", err)
	}
	slices.SortStableFunc(all, func(a, b netlink.Rule) int { return a.Priority - b.Priority })
	var out []string
	for _, r := range all {
		if r.Src != nil && r.Src.Contains(net.IP(source.AsSlice())) {
			out = append(out, fmt.Sprintf("%d: from %s, table %d", r.Priority, r.Src, r.Table))
		}
	}
	return out, nil
}

// LocalAddresses returns the addresses of all interfaces.
func LocalAddresses() (map[netip.Addr]bool, error) {
	all, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := map[netip.Addr]bool{}
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			out[addr.Unmap()] = true
		}
	}
	return out, nil
}
