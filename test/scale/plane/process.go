package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a process may take to start or to end.
const patience = time.Minute

// tick is the interval at which conditions are checked.
const tick = 2 * time.Millisecond

// ErrEnded means that a process has ended by itself.
var ErrEnded = errors.New("it has ended")

// Until waits for a condition: it returns when ok no longer returns an error. If
// ctx ends first, or a process has ended, it returns the last error.
func Until(ctx context.Context, what string, ok func() error) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrEnded) {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", what, ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// Process is a child process.
type Process struct {
	Name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	log  string
	// read is how much of log Tried has read, or earlier processes have written; tried is what it has counted.
	read  int64
	tried int
}

// start runs a program under a name, and writes its output to a file in dir.
func start(dir, name, program string, args ...string) (*Process, error) {
	p := &Process{Name: name, done: make(chan struct{}), log: filepath.Join(dir, name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if p.read, err = log.Seek(0, io.SeekEnd); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the error is in its state
		close(p.done)
	}()
	return p, nil
}

// ready waits until a process that was started is ready.
func (p *Process) ready(ctx context.Context, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return Until(ctx, p.Name, func() error {
		if err := p.Failed(); err != nil {
			return err
		}
		return ok()
	})
}

// Failed returns an error, with the last line of output, if a process has ended.
func (p *Process) Failed() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s: %w (%s): %s", p.Name, ErrEnded, p.cmd.ProcessState, lastLine(p.log))
	default:
		return nil
	}
}

// Tried returns how many controllers of an ovnkube say in its log that they have reconciled once everything that they found when
// they started. It must not be called concurrently.
func (p *Process) Tried() (int, error) {
	file, err := os.Open(p.log)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if _, err := file.Seek(p.read, io.SeekStart); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // complete lines
	p.read += int64(len(text))
	p.tried += bytes.Count(text, []byte("\"All start-up keys tried\""))
	return p.tried, nil
}

// lastLine returns the last line of a program's output.
func lastLine(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	const enough = 1 << 10
	if size, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(0, size-enough), io.SeekStart)
	}
	text, _ := io.ReadAll(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// Stop terminates a process gracefully, or kills it if that takes too long.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

// Kill kills a process.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

func (p *Process) end(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// CPU returns the CPU time that a process has used.
func (p *Process) CPU() time.Duration {
	// The CPU clock of another process, as clock_getcpuclockid(3) computes it.
	var t unix.Timespec
	if unix.ClockGettime(int32(^p.cmd.Process.Pid)<<3|2, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// tickLength is the unit in which the kernel reports the CPU time of processes that have ended.
const tickLength = 10 * time.Millisecond

// ChildrenCPU returns the CPU time of the children of a process that have
// ended.
func (p *Process) ChildrenCPU() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may contain blanks; the state is the first field after it.
	_, rest, _ := strings.Cut(string(text), ") ")
	const user, system = 13, 14
	fields := strings.Fields(rest)
	if len(fields) <= system {
		return 0
	}
	var ticks int64
	for _, f := range fields[user : system+1] {
		n, _ := strconv.ParseInt(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * tickLength
}

// ResetPeak makes the peak of Memory count from now on.
func (p *Process) ResetPeak() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0)
}

// Memory returns the resident memory of a process and its peak, in bytes.
func (p *Process) Memory() (now, peak int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kilobytes); err == nil {
			now = kilobytes << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			peak = kilobytes << 10
		}
	}
	return now, peak
}
