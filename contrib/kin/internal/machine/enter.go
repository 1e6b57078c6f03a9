package machine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const allNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP

// Command runs a program in a machine, with this process's standard files and
// the machine's environment. prepare may replace the standard files. A program
// that ends with a status of its own is an *exec.ExitError.
func Command(d Dir, argv []string, prepare func(*exec.Cmd)) error {
	p, on := d.Running()
	if !on {
		return fmt.Errorf("machine %s is not running", d)
	}
	spec, err := d.Load()
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() { result <- enter(p, spec, argv, prepare) }()
	return <-result
}

// enter sacrifices its thread: the thread that joined the namespaces ends with
// the goroutine.
func enter(p Process, spec Spec, argv []string, prepare func(*exec.Cmd)) error {
	runtime.LockOSThread()
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if err != nil {
		return fmt.Errorf("find first process: %w", err)
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return errors.New("machine has just been switched off")
	}
	// A thread can change its mount namespace only if it does not share its working
	// directory with another thread.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("separate thread: %w", err)
	}
	if err := unix.Setns(fd, allNamespaces); err != nil {
		return fmt.Errorf("enter machine: %w", err)
	}
	// kin's own file may not be visible in the machine except as /proc/1/exe.
	cmd := exec.Command("/proc/1/exe", append([]string{RunCommand}, argv...)...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if prepare != nil {
		prepare(cmd)
	}
	goRead, goWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer goWrite.Close()
	cmd.ExtraFiles = []*os.File{goRead}
	err = cmd.Start()
	goRead.Close()
	if err != nil {
		return fmt.Errorf("run in machine: %w", err)
	}
	defer passSignals(cmd)()
	// On another thread: this one sees only the machine's control groups.
	joined := make(chan error)
	go func() { joined <- joinCgroup(spec.Cgroup+"/exec", cmd.Process.Pid) }()
	if err := <-joined; err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	goWrite.Close()
	return cmd.Wait()
}

// RunCommand is the hidden command of the kin binary that calls Become.
const RunCommand = "machine-run"

// Become turns this process, which is in a machine, into a program that ends
// when the process that requested it ends, however that happens. It returns only with an
// error. (The option of os/exec for this does not work across PID namespaces.)
func Become(argv []string) error {
	runtime.LockOSThread()
	if len(argv) == 0 {
		return errors.New("no program")
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("tie program to its caller: %w", err)
	}
	// The requesting process first moves this process to the machine's control groups.
	unix.CloseOnExec(goFD)
	if _, err := os.NewFile(goFD, "go").Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("await permission to go on: %w", err)
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("find program: %w", err)
	}
	if err := unix.Exec(path, argv, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}

// passSignals forwards signals. A terminal sends its own signals to both processes.
func passSignals(cmd *exec.Cmd) (stop func()) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	return func() { signal.Stop(signals); close(signals) }
}

// InNetwork runs f on a thread in a machine's network namespace.
func InNetwork(p Process, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		fd, err := unix.PidfdOpen(p.Pid, 0)
		if err != nil {
			result <- fmt.Errorf("find first process: %w", err)
			return
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter network: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}

// Plug connects a machine's uplink to its switch.
func Plug(wire Process, u Uplink, machine Process) error {
	return InNetwork(wire, func() error {
		master, err := netlink.LinkByName(u.Bridge)
		if err != nil {
			return fmt.Errorf("find bridge: %w", err)
		}
		if err := unplug(u.Port); err != nil {
			return err
		}
		veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: u.Name, PeerNamespace: netlink.NsPid(machine.Pid)}
		veth.Name, veth.MTU, veth.PeerMTU = u.Port, u.MTU, uint32(u.MTU)
		if u.MAC != "" {
			if veth.PeerHardwareAddr, err = net.ParseMAC(u.MAC); err != nil {
				return err
			}
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("make cable %s: %w", u.Port, err)
		}
		if u.Frames == FramesFinished {
			if err := disableOffloads(u.Port); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetMaster(veth, master); err != nil {
			return fmt.Errorf("plug %s in: %w", u.Port, err)
		}
		if err := netlink.LinkSetUp(veth); err != nil {
			return fmt.Errorf("bring %s up: %w", u.Port, err)
		}
		return nil
	})
}

// Unplug removes a cable; it is no error if there is none.
func Unplug(wire Process, port string) error {
	return InNetwork(wire, func() error { return unplug(port) })
}

func unplug(port string) error {
	link, err := netlink.LinkByName(port)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find cable %s: %w", port, err)
	}
	return removeCable(link)
}

// removeCable removes a cable that may have disappeared since it was looked up: the kernel removes a
// cable when the machine at its other end has died.
func removeCable(link netlink.Link) error {
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove cable %s: %w", link.Attrs().Name, err)
	}
	return nil
}
