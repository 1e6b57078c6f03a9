package machine

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of SIOCETHTOOL that switch one offload each.
const (
	ethtoolSetTxChecksum = 0x17
	ethtoolSetTSO        = 0x1f
	ethtoolSetGSO        = 0x24
)

// disableOffloads keeps a device from passing on frames whose checksum or
// segmentation is left to hardware. A userspace switch at the other end of a
// veth would forward them unchanged, and they would arrive corrupted.
func disableOffloads(device string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	for _, command := range []uint32{ethtoolSetTxChecksum, ethtoolSetTSO, ethtoolSetGSO} {
		value := struct{ command, data uint32 }{command: command}
		var request struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}
		copy(request.name[:unix.IFNAMSIZ-1], device)
		request.data = unsafe.Pointer(&value)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		if errno != 0 && !errors.Is(errno, unix.EOPNOTSUPP) {
			return fmt.Errorf("switch offloads of %s off: %w", device, errno)
		}
	}
	return nil
}
