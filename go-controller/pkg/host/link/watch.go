package link

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// Watch calls changed, which must not block, after each change of a link, an address, a route or an
// ip rule in the caller's network namespace until ctx ends. It subscribes before it returns, so no
// later change is missed; changed is also called if the kernel had to drop notifications.
func Watch(ctx context.Context, changed func()) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return fmt.Errorf("subscribe to changes of links, addresses, routes and rules: %w", err)
	}
	context.AfterFunc(ctx, socket.Close)
	go func() {
		for {
			_, _, err := socket.Receive()
			if ctx.Err() != nil {
				return
			}
			if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADF) {
				klog.ErrorS(err, "Subscription to network changes ended")
				return
			}
			// Any other error (ENOBUFS: the kernel dropped notifications) means that something may
			// have changed.
			changed()
		}
	}()
	return nil
}
