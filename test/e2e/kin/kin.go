// Package kin drives the kin program: it knows its command line, and where the processes of machines
// and containers are found, but nothing else about what a cluster is made of.
//
// Callers: the lab package, which adds what is inside a cluster.
package kin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Program returns the path of the kin binary: $KIN, which the Makefile sets, or else what is found
// in $PATH.
func Program() (string, error) {
	if p := os.Getenv("KIN"); p != "" {
		return p, nil
	}
	p, err := exec.LookPath("kin")
	if err != nil {
		return "", fmt.Errorf("find kin: set KIN to the binary that make build makes: %w", err)
	}
	return p, nil
}

// Cluster is a cluster by name; it need not exist yet.
type Cluster struct {
	Program string
	Name    string
	// Log receives the output of long-running commands as they run; nil discards it.
	Log io.Writer
}

// Options are the options of "kin create cluster".
type Options struct {
	Nodes       int
	GatewayMode string
	IPFamily    string
	// Config is the path of a kin configuration file; empty for none.
	Config string
	// NoOvnkube creates a cluster without a network.
	NoOvnkube bool
	// Install is how ovnkube is installed on the nodes: "manifests" or "processes"; empty for kin's
	// default.
	Install string
}

// CreateArgs returns the command line that Create runs.
func (c Cluster) CreateArgs(o Options) []string {
	args := []string{"create", "cluster", "--name", c.Name, "--nodes", fmt.Sprint(o.Nodes)}
	if o.GatewayMode != "" {
		args = append(args, "--gateway-mode", o.GatewayMode)
	}
	if o.IPFamily != "" {
		args = append(args, "--ip-family", o.IPFamily)
	}
	if o.Config != "" {
		args = append(args, "--config", o.Config)
	}
	if o.Install != "" {
		args = append(args, "--install", o.Install)
	}
	if o.NoOvnkube {
		args = append(args, "--no-ovnkube")
	}
	return args
}

// Create creates the cluster and returns when its nodes are ready.
func (c Cluster) Create(ctx context.Context, o Options) error {
	return c.run(ctx, c.CreateArgs(o)...)
}

// Delete deletes the cluster and everything it left on the machine.
func (c Cluster) Delete(ctx context.Context) error {
	return c.run(ctx, "delete", "cluster", "--name", c.Name)
}

// Kubeconfig returns the path of the administrator's kubeconfig, which is in the cluster's directory.
func (c Cluster) Kubeconfig(ctx context.Context) (string, error) {
	out, err := c.output(ctx, "get", "kubeconfig", "--name", c.Name, "--path")
	return strings.TrimSpace(out), err
}

// Exec runs a command on a node or an outside host and returns its output.
func (c Cluster) Exec(ctx context.Context, machine string, command ...string) (string, error) {
	return c.output(ctx, c.execArgs(machine, command)...)
}

// Send writes a program to a file on a machine.
func (c Cluster) Send(ctx context.Context, machine, path string, program io.Reader) error {
	cmd := c.command(ctx, c.execArgs(machine, []string{"sh", "-c", "cat >\"$0\" && chmod 755 \"$0\"", path}))
	cmd.Stdin = program
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("write %s on %s: %w: %s", path, machine, err, tail(string(out)))
	}
	return nil
}

func (c Cluster) execArgs(machine string, command []string) []string {
	return append([]string{"exec", "--name", c.Name, machine, "--"}, command...)
}

// Attached is a command that runs on a machine for as long as its standard input is open.
type Attached struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// ExecAttached starts a command that ends when its standard input is closed, so that it cannot
// outlive the caller.
func (c Cluster) ExecAttached(machine string, command ...string) (*Attached, error) {
	return c.ExecAttachedTo(c.Log, c.Log, machine, command...)
}

// ExecAttachedTo is ExecAttached with the writers for the command's output. It writes to files
// itself.
func (c Cluster) ExecAttachedTo(stdout, stderr io.Writer, machine string, command ...string) (*Attached, error) {
	cmd := exec.Command(c.Program, c.execArgs(machine, command)...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = 5 * time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %q on %s: %w", command, machine, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %q on %s: %w", command, machine, err)
	}
	return &Attached{cmd: cmd, stdin: stdin}, nil
}

// Close ends the command and waits for it.
func (a *Attached) Close() error {
	if err := a.stdin.Close(); err != nil {
		return err
	}
	return a.cmd.Wait()
}

// Pipe runs a command with a connection as its standard input and output, and closes the connection
// when the command has ended.
func (c Cluster) Pipe(ctx context.Context, machine string, conn io.ReadWriteCloser, command ...string) error {
	defer conn.Close()
	cmd := c.command(ctx, c.execArgs(machine, command))
	cmd.Stdout, cmd.Stderr = conn, c.Log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %q on %s: %w", command, machine, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %q on %s: %w", command, machine, err)
	}
	go func() {
		_, _ = io.Copy(stdin, conn) // until either end closes
		_ = stdin.Close()
	}()
	return cmd.Wait()
}

// Node controls the power of a node: action is "stop", "kill" or "start".
func (c Cluster) Node(ctx context.Context, action, node string) error {
	return c.run(ctx, "node", action, "--name", c.Name, node)
}

// Service controls a daemon on a node: action is "start", "stop", "restart" or "kill".
func (c Cluster) Service(ctx context.Context, action, node, daemon string) error {
	return c.run(ctx, "service", action, "--name", c.Name, node, daemon)
}

// AddHost adds a host outside the cluster to one of its networks, by default the nodes' own.
func (c Cluster) AddHost(ctx context.Context, name, network string, addresses ...string) error {
	args := []string{"host", "add", "--name", c.Name, "--network", network}
	for _, a := range addresses {
		args = append(args, "--ip", a)
	}
	return c.run(ctx, append(args, name)...)
}

// DeleteHost removes a host.
func (c Cluster) DeleteHost(ctx context.Context, name string) error {
	return c.run(ctx, "host", "delete", "--name", c.Name, name)
}

// Hosts lists the hosts outside the cluster.
func (c Cluster) Hosts(ctx context.Context) (hosts []string, err error) {
	out, err := c.output(ctx, "get", "nodes", "--name", c.Name)
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "host" {
			hosts = append(hosts, fields[0])
		}
	}
	return hosts, err
}

// LoadImage loads an image archive into every node.
func (c Cluster) LoadImage(ctx context.Context, archive string) error {
	return c.run(ctx, "load", "image", "--name", c.Name, archive)
}

// Clusters lists the names of all clusters on this machine.
func (c Cluster) Clusters(ctx context.Context) ([]string, error) {
	out, err := c.output(ctx, "get", "clusters")
	return strings.Fields(out), err
}

// Logs returns the logs of a machine's daemons, or of one of them if it is named.
func (c Cluster) Logs(ctx context.Context, machine string, daemon ...string) (string, error) {
	return c.output(ctx, append([]string{"logs", "--name", c.Name, machine}, daemon...)...)
}

// Kubectl returns the path of the kubectl that kin built for its clusters.
func (c Cluster) Kubectl() string {
	return filepath.Join(filepath.Dir(c.Program), "..", "kin", "bin", "kubectl")
}

// run runs kin and copies its output to the log.
func (c Cluster) run(ctx context.Context, args ...string) error {
	cmd := c.command(ctx, args)
	var all bytes.Buffer
	cmd.Stdout = &all
	if c.Log != nil {
		cmd.Stdout = io.MultiWriter(&all, c.Log)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kin %s: %w: %s", strings.Join(args, " "), err, tail(all.String()))
	}
	return nil
}

// output runs kin and returns its standard output.
func (c Cluster) output(ctx context.Context, args ...string) (string, error) {
	cmd := c.command(ctx, args)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kin %s: %w: %s", strings.Join(args, " "), err, tail(stderr.String()))
	}
	return stdout.String(), nil
}

func (c Cluster) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Program, args...)
	// A grandchild may keep the pipes open after kin itself was killed.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// tail returns the end of a long message.
func tail(s string) string {
	const most = 2000
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = "..." + s[len(s)-most:]
	}
	return s
}
