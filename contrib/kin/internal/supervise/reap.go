package supervise

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// reaper starts children and is the only one that waits for them and for the
// orphans that a PID 1 inherits.
type reaper struct {
	// mu is held from before a fork until its pid is known, so that a child
	// that ends at once is not mistaken for an orphan.
	mu       sync.Mutex
	children map[int]chan syscall.WaitStatus
}

func newReaper() *reaper {
	return &reaper{children: map[int]chan syscall.WaitStatus{}}
}

// run reaps until ctx ends.
func (r *reaper) run(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	defer signal.Stop(signals)
	for {
		r.sweep()
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
	}
}

func (r *reaper) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended, ours := r.children[pid]; ours {
			delete(r.children, pid)
			ended <- status
		}
	}
}

// start forks a program in a new session. Its exit status is sent on the
// channel once.
func (r *reaper) start(argv, env []string, output *os.File) (int, <-chan syscall.WaitStatus, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, nil, fmt.Errorf("find program: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, fmt.Errorf("open null device: %w", err)
	}
	defer null.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   env,
		Files: []uintptr{null.Fd(), output.Fd(), output.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", path, err)
	}
	ended := make(chan syscall.WaitStatus, 1)
	r.children[pid] = ended
	return pid, ended, nil
}

// finish runs a program to completion; if ctx ends first, the program is killed.
func (r *reaper) finish(ctx context.Context, argv, env []string, output *os.File) error {
	pid, ended, err := r.start(argv, env, output)
	if err != nil {
		return err
	}
	select {
	case status := <-ended:
		return failure(argv[0], status)
	case <-ctx.Done():
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		<-ended
		return fmt.Errorf("%s took too long: %w", argv[0], ctx.Err())
	}
}

func failure(name string, status syscall.WaitStatus) error {
	switch {
	case status.Signaled():
		return fmt.Errorf("%s was ended by signal %s", name, status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("%s ended with status %d", name, status.ExitStatus())
	}
	return nil
}
