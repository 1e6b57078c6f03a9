package link

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpAttempts is how often Dump asks: one that is interrupted that often is
// changed faster than it can be read.
const dumpAttempts = 10

// Dump asks again where the kernel says that what it listed changed meanwhile,
// since such a list may lack objects that are there.
func Dump[T any](list func() ([]T, error)) ([]T, error) {
	for attempt := 1; ; attempt++ {
		out, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || attempt == dumpAttempts {
			return out, err
		}
	}
}
