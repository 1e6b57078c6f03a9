package plane

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// Answer is the output of a program, and the resources that it used.
type Answer struct {
	Text string
	CPU  time.Duration
	Peak int64 // resident memory, in bytes
}

// notInPlace is the exit status of "ovnkube egress" if it has an answer but something in
// it is not as planned.
const notInPlace = 1

// Ask runs ovnkube with arguments and a master's permissions, and waits for its answer.
func (p *Plane) Ask(ctx context.Context, args ...string) (Answer, error) {
	cmd := exec.CommandContext(ctx, p.config.Ovnkube, append(args, "--kubeconfig", p.path("kubeconfig"))...)
	text, err := cmd.Output()
	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() != notInPlace {
		return Answer{}, fmt.Errorf("%w: %s", err, status.Stderr)
	}
	if err != nil && status == nil {
		return Answer{}, err
	}
	a := Answer{Text: string(text), CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		a.Peak = usage.Maxrss << 10
	}
	return a, nil
}
