// Package watch reports that objects of the host were changed, so that the drivers that own them
// need not wait for their next resync. It does not report what was changed or by whom: the drivers
// compare, and write nothing if nothing differs.
//
// A subscription stays in the network namespace in which it was made.
//
// Callers: the node role of the application.
package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// Functions are called when objects of a kind may have changed. They must not block, and nil ones
// are not called.
type Functions struct {
	// IPRules: ip rules were deleted.
	IPRules func()
	// Routes: routes with host.Protocol were deleted, or may have disappeared with an address or a
	// link: the kernel does not report which ones.
	Routes func()
	// Addresses: addresses were added or deleted, or their lifetimes changed.
	Addresses func()
	// Settings: parameters below net/ipv4/conf and net/ipv6/conf were changed, as far as the kernel
	// sends notifications: it does for forwarding and rp_filter, but not for redirects.
	Settings func()
	// NFTables: nftables were changed, which iptables writes to as well, unless it is the legacy
	// one.
	NFTables func()
}

// source is a kind of netlink messages.
type source struct {
	protocol int
	groups   []uint
	concerns func(Functions, syscall.NetlinkMessage) []func()
}

var sources = []source{
	{unix.NETLINK_ROUTE, []uint{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	}, ofRoute},
	{unix.NETLINK_NETFILTER, []uint{unix.NFNLGRP_NFTABLES}, ofNetfilter},
}

// Watch calls functions until ctx ends. It subscribes before it returns, so no later change is
// missed; if the kernel had to drop notifications, all functions are called. If the kernel does not
// support one of the subscriptions, such as nftables, an error says so, and the rest is watched.
func Watch(ctx context.Context, f Functions) error {
	var errs []error
	for _, s := range sources {
		socket, err := nl.Subscribe(s.protocol, s.groups...)
		if err != nil {
			errs = append(errs, fmt.Errorf("subscribe to changes of the host: %w", err))
			continue
		}
		context.AfterFunc(ctx, socket.Close)
		go receive(ctx, socket, s, f)
	}
	return errors.Join(errs...)
}

func receive(ctx context.Context, socket *nl.NetlinkSocket, s source, f Functions) {
	for {
		messages, from, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, os.ErrClosed), errors.Is(err, unix.EBADF):
			klog.ErrorS(err, "Subscription to changes of the host ended")
			return
		case err != nil: // ENOBUFS: the kernel dropped notifications
			call(f.IPRules, f.Routes, f.Addresses, f.Settings, f.NFTables)
			continue
		case from.Pid != nl.PidKernel:
			continue
		}
		for _, m := range messages {
			call(s.concerns(f, m)...)
		}
	}
}

func call(functions ...func()) {
	for _, f := range functions {
		if f != nil {
			f()
		}
	}
}

// ofRoute returns the functions to call for a message of rtnetlink(7).
func ofRoute(f Functions, m syscall.NetlinkMessage) []func() {
	switch m.Header.Type {
	case unix.RTM_DELRULE:
		return []func(){f.IPRules}
	case unix.RTM_DELLINK:
		return []func(){f.Routes}
	case unix.RTM_NEWLINK:
		// struct ifinfomsg: its last word has the changed flags.
		if len(m.Data) >= unix.SizeofIfInfomsg && binary.NativeEndian.Uint32(m.Data[unix.SizeofIfInfomsg-4:])&unix.IFF_UP != 0 {
			return []func(){f.Routes}
		}
	case unix.RTM_DELROUTE:
		// struct rtmsg: the protocol is its sixth byte.
		if len(m.Data) > 5 && int(m.Data[5]) == host.Protocol {
			return []func(){f.Routes}
		}
	case unix.RTM_NEWADDR: // also sent if lifetimes were changed
		return []func(){f.Addresses}
	case unix.RTM_DELADDR:
		return []func(){f.Addresses, f.Routes}
	case unix.RTM_NEWNETCONF:
		return []func(){f.Settings}
	}
	return nil
}

// ofNetfilter returns the functions to call for a message of nftables: the last message of each
// change has its generation.
func ofNetfilter(f Functions, m syscall.NetlinkMessage) []func() {
	if m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		return []func(){f.NFTables}
	}
	return nil
}
