package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Hidden commands of the kin binary: the two stages of a machine's first
// process. Their arguments are the cluster, the machine and its directory.
const (
	SetupCommand = "machine-setup"
	MainCommand  = "machine-init"
)

// Descriptors that the first process inherits.
const (
	goFD     = 3 // read: one byte, once the cable is connected
	reportFD = 4 // written: an error; closed without output on success
	listenFD = 5 // a listener, for a machine that forwards
)

// bootTimeout limits how long the first process may take to set up its machine. It is far
// longer than needed even on a busy or emulated machine.
const bootTimeout = 2 * time.Minute

// Boot starts a machine from its directory. plug is called with the first
// process once its namespaces exist, to connect the cable. listener may be nil.
func Boot(d Dir, plug func(Process) error, listener *os.File) (Process, error) {
	if p, on := d.Running(); on {
		return p, nil
	}
	spec, err := d.Load()
	if err != nil {
		return Process{}, err
	}
	if err := RemoveCgroup(spec.Cgroup); err != nil {
		return Process{}, fmt.Errorf("clear control groups of an earlier run: %w", err)
	}
	p, wires, err := launch(d, spec, listener)
	if err != nil {
		return p, err
	}
	defer wires.Close()
	if plug != nil {
		if err := plug(p); err != nil {
			_ = p.Signal(syscall.SIGKILL)
			return p, fmt.Errorf("plug in %s: %w", spec.Hostname, err)
		}
	}
	if _, err := wires.start.Write([]byte{1}); err != nil {
		return p, fmt.Errorf("let %s go on: %w", spec.Hostname, err)
	}
	if err := wires.outcome(); err != nil {
		_ = p.Signal(syscall.SIGKILL)
		return p, fmt.Errorf("boot %s: %w", spec.Hostname, err)
	}
	return p, nil
}

// pipes are the parent's ends of the pipes to a first process.
type pipes struct{ start, report *os.File }

func (p pipes) Close() {
	p.start.Close()
	p.report.Close()
}

func (p pipes) outcome() error {
	if err := p.report.SetReadDeadline(time.Now().Add(bootTimeout)); err != nil {
		return fmt.Errorf("limit wait: %w", err)
	}
	text, err := io.ReadAll(p.report)
	if err != nil {
		return fmt.Errorf("await set-up: %w", err)
	}
	if len(text) > 0 {
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}

func launch(d Dir, spec Spec, listener *os.File) (Process, pipes, error) {
	var p Process
	log, err := os.OpenFile(d.InitLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return p, pipes{}, fmt.Errorf("open log of %s: %w", spec.Hostname, err)
	}
	defer log.Close()
	goRead, goWrite, err := os.Pipe()
	if err != nil {
		return p, pipes{}, fmt.Errorf("make pipe: %w", err)
	}
	defer goRead.Close()
	reportRead, reportWrite, err := os.Pipe()
	if err != nil {
		goWrite.Close()
		return p, pipes{}, fmt.Errorf("make pipe: %w", err)
	}
	defer reportWrite.Close()
	ours := pipes{start: goWrite, report: reportRead}

	// This very program, even if its file has been replaced meanwhile.
	cmd := exec.Command("/proc/self/exe", SetupCommand, spec.Cluster, spec.Hostname, string(d))
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.ExtraFiles = []*os.File{goRead, reportWrite}
	if listener != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, listener)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Setsid:     true,
	}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return p, pipes{}, fmt.Errorf("start first process of %s: %w", spec.Hostname, err)
	}
	// The machine must outlive this command, so nobody waits for it here.
	if p, err = identify(cmd.Process.Pid); err == nil {
		err = d.remember(p)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		ours.Close()
		return p, pipes{}, fmt.Errorf("remember %s: %w", spec.Hostname, err)
	}
	return p, ours, nil
}

// Kill cuts a machine's power. Everything in it is gone when Kill returns.
func Kill(d Dir) error {
	p, on := d.Running()
	if on {
		if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	return settle(d, p)
}

// Stop shuts a machine down gracefully, or cuts its power if that takes longer
// than the timeout.
func Stop(d Dir, timeout time.Duration) error {
	p, on := d.Running()
	if !on {
		return settle(d, p)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if !p.AwaitEnd(timeout) {
		return Kill(d)
	}
	return settle(d, p)
}

// settle waits until a machine has ended and removes what remains of it.
func settle(d Dir, p Process) error {
	if p.Pid != 0 && !p.AwaitEnd(10*time.Second) {
		return fmt.Errorf("process %d does not end", p.Pid)
	}
	if err := os.Remove(filepath.Join(string(d), pidFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget process: %w", err)
	}
	spec, err := d.Load()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return RemoveCgroup(spec.Cgroup)
}
