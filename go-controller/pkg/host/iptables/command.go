package iptables

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// programs are the iptables programs of one family.
type programs struct {
	family  topology.Family
	path    string
	save    string
	restore []string // with arguments
	writes  int
}

// The first version whose iptables-restore can wait for the lock.
const waitMajor, waitMinor, waitPatch = 1, 6, 2

// lockSeconds is how long iptables-restore waits for the lock.
const lockSeconds = "5"

func protocol(f topology.Family) iptables.Protocol {
	if f == topology.IPv6 {
		return iptables.ProtocolIPv6
	}
	return iptables.ProtocolIPv4
}

// basename is the name of the programs of a family.
func basename(f topology.Family) string {
	if f == topology.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// find finds the programs of a family: those next to the first iptables in the path, so that all
// use the same backend.
func find(f topology.Family) (*programs, error) { return findNamed(f, basename(f)) }

// findNamed finds the programs of a family by the name of one of them, such as iptables-nft.
func findNamed(f topology.Family, name string) (*programs, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	ipt, err := iptables.New(iptables.IPFamily(protocol(f)), iptables.Path(path))
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	p := &programs{family: f, path: path, save: path + "-save", restore: []string{path + "-restore", "--noflush"}}
	for _, program := range []string{p.save, p.restore[0]} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("find %s beside %s: %w", program, path, err)
		}
	}
	major, minor, patch := ipt.GetIptablesVersion()
	if canWait(major, minor, patch) {
		p.restore = append(p.restore, "-w", lockSeconds)
	}
	klog.V(2).InfoS("Found iptables", "family", f, "path", path, "version", fmt.Sprintf("%d.%d.%d", major, minor, patch))
	return p, nil
}

func canWait(major, minor, patch int) bool {
	switch {
	case major != waitMajor:
		return major > waitMajor
	case minor != waitMinor:
		return minor > waitMinor
	}
	return patch >= waitPatch
}

// legacy reports whether the programs write to the kernel's legacy tables instead of nftables.
func (p *programs) legacy() (bool, error) {
	version, err := exec.Command(p.path, "--version").Output()
	if err != nil {
		return false, fmt.Errorf("ask %s for its version: %w", p.path, err)
	}
	return !strings.Contains(string(version), "nf_tables"), nil
}

// read returns what iptables-save prints of one table, or of all tables if table is "".
func (p *programs) read(ctx context.Context, table string) (string, error) {
	args := []string{p.save}
	if table != "" {
		args = append(args, "-t", table)
	}
	return run(ctx, "", args)
}

// write applies input, each of its tables in one transaction, and leaves everything that it does
// not mention.
func (p *programs) write(ctx context.Context, input string) error {
	_, err := run(ctx, input, p.restore)
	return err
}

func run(ctx context.Context, input string, command []string) (string, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Save returns what iptables-save prints of a table, including foreign rules.
func Save(ctx context.Context, f topology.Family, table string) (string, error) {
	p, err := find(f)
	if err != nil {
		return "", err
	}
	return p.read(ctx, table)
}
