package openflow

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// Release deletes our flows, and those that they have learned, at once. What the bridge had before Sweep is lost, so
// it becomes a plain switch, as without a controller: with no flow at all it would forward nothing.
func (w *Writer) Release(ctx context.Context) error {
	text, err := w.Dump(ctx)
	if err != nil {
		return err
	}
	ours, plain := false, "add table=0,priority=0,actions=NORMAL\n"
	for line := range strings.Lines(text) {
		switch {
		case strings.Contains(line, fmt.Sprintf("cookie=%#x,", Cookie)), strings.Contains(line, fmt.Sprintf("cookie=%#x,", host.LearnedCookie)):
			ours = true
		case strings.Contains(line, " priority=0 actions=") && !strings.Contains(line, "table="): // neither table 0 nor cookie 0 is printed
			plain = ""
		}
	}
	if !ours {
		return nil
	}
	input := fmt.Sprintf("delete cookie=%#x/-1\ndelete cookie=%#x/-1\n", Cookie, host.LearnedCookie) + plain
	if _, err := w.ofctl(ctx, input, "--bundle", "add-flows", w.target, "-"); err != nil {
		return err
	}
	klog.V(2).InfoS("Deleted our flows from a bridge", "bridge", w.bridge)
	return nil
}
