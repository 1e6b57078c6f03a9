// Package unixctl sends requests to the daemons of Open vSwitch and OVN over their control sockets,
// as ovs-appctl does, but without a process per request.
//
// Callers: app, host/conntrack, host/openflow, host/tracer.
package unixctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Daemon identifies a running daemon by its run directory and name.
type Daemon struct {
	RunDir string // "/var/run/openvswitch", "/var/run/ovn"
	Name   string // "ovs-vswitchd", "ovn-controller"
}

// errRefused is that of a command that the daemon does not execute.
var errRefused = errors.New("refused")

// Call runs a command of the daemon and returns its answer. It is an error if the daemon does not
// run, or does not answer before ctx ends.
func (d Daemon) Call(ctx context.Context, command string, args ...string) (string, error) {
	answer, err := d.call(ctx, command, args)
	if err != nil {
		return "", fmt.Errorf("ask %s for %s: %w", d.Name, command, err)
	}
	return answer, nil
}

func (d Daemon) call(ctx context.Context, command string, args []string) (string, error) {
	pid, err := os.ReadFile(filepath.Join(d.RunDir, d.Name+".pid"))
	if err != nil {
		return "", err
	}
	socket := filepath.Join(d.RunDir, fmt.Sprintf("%s.%s.ctl", d.Name, strings.TrimSpace(string(pid))))
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if args == nil {
		args = []string{}
	}
	if err := json.NewEncoder(conn).Encode(map[string]any{"id": 0, "method": command, "params": args}); err != nil {
		return "", err
	}
	var reply struct {
		Result *string `json:"result"`
		Error  any     `json:"error"`
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return "", err
	}
	if reply.Result == nil {
		return "", fmt.Errorf("%w: %v", errRefused, reply.Error)
	}
	return *reply.Result, nil
}
