package openflow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// version is the OpenFlow version used: the first one with bundles.
const version = "-OOpenFlow14"

// diffStatus is the exit status of diff-flows if something differs.
const diffStatus = 2

// diff compares the bridge with the flows of input. lacks means that one of them is missing or
// differs on the bridge, differs that there is any difference.
func (w *Writer) diff(ctx context.Context, input string) (lacks, differs bool, err error) {
	out, err := w.ofctl(ctx, input, "diff-flows", w.target, "/dev/stdin") // unlike replace-flows it does not take "-"
	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() == diffStatus {
		return strings.HasPrefix(out, "+") || strings.Contains(out, "\n+"), true, nil
	}
	return false, false, err
}

// ofctl runs ovs-ofctl with input; there is no library that supports OpenFlow as completely.
func (w *Writer) ofctl(ctx context.Context, input string, args ...string) (string, error) {
	args = append([]string{version, "--timeout=10"}, args...)
	cmd := exec.CommandContext(ctx, "ovs-ofctl", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("run ovs-ofctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
