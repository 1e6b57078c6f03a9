package link

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpAttempts is how often Dump tries: a list that is interrupted that often changes faster than
// it can be read.
const dumpAttempts = 10

// Dump lists again if the kernel says that the objects changed while it listed them, since such a
// list may lack objects that exist.
func Dump[T any](list func() ([]T, error)) ([]T, error) {
	for attempt := 1; ; attempt++ {
		out, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || attempt == dumpAttempts {
			return out, err
		}
	}
}
