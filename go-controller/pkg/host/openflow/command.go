package openflow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// version is the OpenFlow version used: the first with bundles.
const version = "-OOpenFlow14"

// diffStatus is how diff-flows says that something differs.
const diffStatus = 2

// same tells whether the bridge holds just the flows of input.
func (w *Writer) same(ctx context.Context, input string) (bool, error) {
	_, err := w.ofctl(ctx, input, "diff-flows", w.target, "/dev/stdin") // unlike replace-flows it does not take "-"
	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() == diffStatus {
		return false, nil
	}
	return err == nil, err
}

// ofctl runs ovs-ofctl with input; there is no library that speaks OpenFlow as
// completely.
func (w *Writer) ofctl(ctx context.Context, input string, args ...string) (string, error) {
	args = append([]string{version, "--timeout=10"}, args...)
	cmd := exec.CommandContext(ctx, "ovs-ofctl", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run ovs-ofctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
