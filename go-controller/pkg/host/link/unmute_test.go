package link

import (
	"errors"
	"testing"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TestRemoveFromKernelsWithoutNftables: a DEL must not fail on a kernel on which nothing can have
// been muted.
func TestRemoveFromKernelsWithoutNftables(t *testing.T) {
	for errno, gone := range map[unix.Errno]bool{
		unix.ENOENT: true, unix.EOPNOTSUPP: true, unix.EPROTONOSUPPORT: true, unix.EAFNOSUPPORT: true,
		unix.EPERM: false, unix.EBUSY: false,
	} {
		kernel := nftables.WithTestDial(func([]netlink.Message) ([]netlink.Message, error) {
			return nil, &netlink.OpError{Op: "receive", Err: errno}
		})
		err := without(func(c *nftables.Conn) {
			c.DelTable(&nftables.Table{Name: muteTable, Family: nftables.TableFamilyNetdev})
		}, kernel)
		if gone != (err == nil) || !gone && !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
