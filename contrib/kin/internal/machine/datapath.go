package machine

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CheckKernelDatapath returns an error if the kernel lacks something for Open vSwitch's kernel
// datapath with tunnels. It creates both in a temporary network namespace,
// which makes the kernel load the modules it needs, and leaves nothing behind.
func CheckKernelDatapath() error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		result <- checkKernelDatapath()
	}()
	return <-result
}

func checkKernelDatapath() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	if _, err := netlink.GenlFamilyGet("ovs_datapath"); err != nil {
		return fmt.Errorf("this kernel has no Open vSwitch datapath: %w", err)
	}
	tunnel := &netlink.Geneve{LinkAttrs: netlink.NewLinkAttrs(), Dport: 6081, FlowBased: true}
	tunnel.Name = "geneve0"
	if err := netlink.LinkAdd(tunnel); err != nil {
		return fmt.Errorf("this kernel has no Geneve tunnels: %w", err)
	}
	return nil
}
