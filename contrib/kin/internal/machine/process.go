package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies a process, and cannot be confused with a later one that has the same pid.
type Process struct {
	Pid int
	// Started is the start time in clock ticks since the kernel's boot.
	Started uint64
}

// Alive reports whether the process still runs. A zombie does not: the machine's
// own PID 1 may take long to reap it.
func (p Process) Alive() bool {
	state, started, err := stat(p.Pid)
	return err == nil && started == p.Started && state != 'Z' && state != 'X'
}

// Signal sends a signal to the process if its pid has not been reused.
func (p Process) Signal(sig syscall.Signal) error {
	if !p.Alive() {
		return os.ErrProcessDone
	}
	if err := syscall.Kill(p.Pid, sig); errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone // it has ended since the check
	} else if err != nil {
		return fmt.Errorf("send %s to process %d: %w", sig, p.Pid, err)
	}
	return nil
}

// AwaitEnd waits until the process has ended, and reports whether it did so in time.
func (p Process) AwaitEnd(timeout time.Duration) bool {
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if err != nil {
		return !p.Alive()
	}
	defer unix.Close(fd)
	// The descriptor may refer to a later process with this pid; then ours has ended.
	for deadline := time.Now().Add(timeout); p.Alive(); {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
	return true
}

// Root is the machine's root directory as seen from here.
func (p Process) Root() string { return fmt.Sprintf("/proc/%d/root", p.Pid) }

func identify(pid int) (Process, error) {
	_, started, err := stat(pid)
	return Process{Pid: pid, Started: started}, err
}

// stat reads state and start time; fields are counted after the command name,
// which may contain any characters.
func stat(pid int) (state byte, started uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("look at process: %w", err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("look at process %d: short answer", pid)
	}
	started, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0][0], started, err
}

// Running returns the machine's first process, and reports whether the machine is on.
func (d Dir) Running() (Process, bool) {
	text, err := os.ReadFile(filepath.Join(string(d), pidFile))
	if err != nil {
		return Process{}, false
	}
	var p Process
	if _, err := fmt.Sscan(string(text), &p.Pid, &p.Started); err != nil {
		return Process{}, false
	}
	return p, p.Alive()
}

func (d Dir) remember(p Process) error {
	text := fmt.Sprintf("%d %d\n", p.Pid, p.Started)
	if err := os.WriteFile(filepath.Join(string(d), pidFile), []byte(text), 0o644); err != nil {
		return fmt.Errorf("remember process: %w", err)
	}
	return nil
}
