package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Kubectl returns the command line that runs kubectl against the cluster.
func (l *Lab) Kubectl() []string {
	return []string{l.Kin.Kubectl(), "--kubeconfig", l.Kubeconfig}
}

// Run runs a command on this machine and returns its combined output.
func Run(ctx context.Context, command ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}

// RouteTo makes the outside host reach addresses through a node, as a load-balancer provider does
// that announces them from there.
func (l *Lab) RouteTo(ctx context.Context, addresses []netip.Addr, node string) error {
	via, err := l.NodeAddresses(ctx, node)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		hop := OfFamily(via, a.Is4())
		if _, err := l.Kin.Exec(ctx, Outside, "ip", "route", "replace", a.String(), "via", hop.String()); err != nil {
			return err
		}
	}
	return nil
}

// Forward returns an address on this machine that is forwarded to an address that a machine of the
// lab can reach, until ctx ends.
func (l *Lab) Forward(ctx context.Context, machine string, to netip.AddrPort) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for what goes to %s: %w", to, err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			// The client sees that the connection ends.
			go func() { _ = l.Kin.Pipe(ctx, machine, conn, "busybox", "nc", to.Addr().String(), fmt.Sprint(to.Port())) }()
		}
	}()
	return listener.Addr().String(), nil
}

// WriteFile writes a file to the lab's directory and returns its path.
func (l *Lab) WriteFile(name, content string) (string, error) {
	path := filepath.Join(l.Dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return path, nil
}

// DatapathErrors returns the lines in the log of a node's ovs-vswitchd that report a crash; a
// healthy one has none.
func (l *Lab) DatapathErrors(ctx context.Context, node string) (string, error) {
	log, err := l.Kin.Logs(ctx, node, "ovs-vswitchd")
	if err != nil {
		return "", err
	}
	var crashes strings.Builder
	for line := range strings.Lines(log) {
		if strings.Contains(line, "EMER") {
			crashes.WriteString(line)
		}
	}
	return crashes.String(), nil
}

// ExportLogs writes the logs of the given nodes and of their pods to files in dir. It continues after
// errors: a node may have no power.
func (l *Lab) ExportLogs(ctx context.Context, dir string, nodes ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of logs: %w", err)
	}
	var errs []error
	for _, node := range nodes {
		daemons, err := l.Kin.Logs(ctx, node)
		errs = append(errs, err)
		pods, err := l.Kin.Exec(ctx, node, "find", "/var/log/pods", "-name", "*.log", "-exec", "tail", "-n", "+1", "{}", "+")
		errs = append(errs, err)
		for name, log := range map[string]string{node + ".log": daemons, node + "-pods.log": pods} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(log), 0o644); err != nil {
				errs = append(errs, fmt.Errorf("write log: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
