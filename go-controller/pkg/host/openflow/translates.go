package openflow

import (
	"context"
	"net/netip"
	"slices"
	"strings"
)

// Translates returns those of addrs that any flow of the bridge, whoever wrote it, uses as the
// source address of a translation. It reads all flows of the bridge.
func (w *Writer) Translates(ctx context.Context, addrs []netip.Addr) ([]netip.Addr, error) {
	text, err := w.Dump(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		to := "nat(src=" + a.String()
		return !strings.Contains(text, to+")") && !strings.Contains(text, to+",")
	}), nil
}
