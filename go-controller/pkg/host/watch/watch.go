// Package watch tells that objects of the host were changed, so that the drivers
// which own them need not wait for their next comparison. It does not say what was
// changed or by whom: the drivers compare, and write nothing where nothing differs.
//
// A subscription stays in the network namespace it was made in.
//
// Callers: the node role of the application.
package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// Functions are called when objects of a kind may have changed. They must not block,
// and nil ones are not called.
type Functions struct {
	// IPRules were deleted.
	IPRules func()
	// Routes with host.Protocol were deleted, or may have gone with an address or a
	// link: the kernel does not tell which those were.
	Routes func()
	// Addresses were deleted, or their lifetimes changed.
	Addresses func()
	// Settings below net/ipv4/conf and net/ipv6/conf were changed, as far as the kernel
	// tells: of forwarding and rp_filter it does, of redirects it does not.
	Settings func()
	// NFTables were changed, which iptables writes to as well, unless it is the legacy one.
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

// Watch calls functions until ctx ends. It subscribes before it returns, so nothing
// that happens afterwards is missed; where the kernel had to drop news, all functions
// are called. Where it has nothing to subscribe to, such as nftables, the error says
// so, and the rest is watched.
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
		case err != nil: // ENOBUFS: the kernel dropped news
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

// ofRoute sorts messages of rtnetlink(7).
func ofRoute(f Functions, m syscall.NetlinkMessage) []func() {
	switch m.Header.Type {
	case unix.RTM_DELRULE:
		return []func(){f.IPRules}
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return []func(){f.Routes}
	case unix.RTM_DELROUTE:
		// struct rtmsg: the protocol is its sixth byte.
		if len(m.Data) > 5 && int(m.Data[5]) == host.Protocol {
			return []func(){f.Routes}
		}
	case unix.RTM_DELADDR:
		return []func(){f.Addresses, f.Routes}
	case unix.RTM_NEWNETCONF:
		return []func(){f.Settings}
	}
	return nil
}

// ofNetfilter sorts messages of nftables: the last one of each change tells its
// generation.
func ofNetfilter(f Functions, m syscall.NetlinkMessage) []func() {
	if m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		return []func(){f.NFTables}
	}
	return nil
}
