package iptables

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// commands of each family; no library has restore.
var (
	saveCommand    = map[topology.Family]string{topology.IPv4: "iptables-save", topology.IPv6: "ip6tables-save"}
	restoreCommand = map[topology.Family]string{topology.IPv4: "iptables-restore", topology.IPv6: "ip6tables-restore"}
)

// save returns a table as iptables-save prints it.
func save(ctx context.Context, p place) (string, error) {
	return run(ctx, "", saveCommand[p.family], "-t", p.table)
}

// restore applies input in one transaction and leaves what it does not name.
func restore(ctx context.Context, p place, input string) error {
	_, err := run(ctx, input, restoreCommand[p.family], "--noflush", "-w", "5")
	return err
}

func run(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
