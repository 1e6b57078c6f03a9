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
	"slices"
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

func (d Daemon) call(ctx context.Context, command string, args []string) (answer string, err error) {
	errSent := d.send(ctx, command, [][]string{args}, func(_ int, is string, errIs error) { answer, err = is, errIs })
	return answer, errors.Join(errSent, err)
}

// atOnce is how many requests CallEach sends before it waits for the answers: the daemons execute up to ten in each turn of
// their main loop, which can take ten milliseconds.
const atOnce = 10

// CallEach runs a command of the daemon with each of several lists of arguments, in this order, and passes the
// answers to done: an answer, or the error with which the daemon refused. It is an error if the daemon does not run, or
// does not answer before ctx ends.
func (d Daemon) CallEach(ctx context.Context, command string, args [][]string, done func(i int, answer string, err error)) error {
	err := d.send(ctx, command, args, func(i int, answer string, err error) {
		if err != nil {
			err = fmt.Errorf("ask %s for %s: %w", d.Name, command, err)
		}
		done(i, answer, err)
	})
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w", d.Name, command, err)
	}
	return nil
}

// send runs a command with each of several lists of arguments over one connection. It starts no goroutine, since the thread
// of the caller may be in a namespace of its own.
func (d Daemon) send(ctx context.Context, command string, args [][]string, done func(i int, answer string, err error)) error {
	pid, err := os.ReadFile(filepath.Join(d.RunDir, d.Name+".pid"))
	if err != nil {
		return err
	}
	socket := filepath.Join(d.RunDir, fmt.Sprintf("%s.%s.ctl", d.Name, strings.TrimSpace(string(pid))))
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	out, in, i := json.NewEncoder(conn), json.NewDecoder(conn), 0
	for window := range slices.Chunk(args, atOnce) {
		for _, params := range window {
			if params == nil {
				params = []string{}
			}
			if err := out.Encode(map[string]any{"id": 0, "method": command, "params": params}); err != nil {
				return err
			}
		}
		for range window {
			var reply struct {
				Result *string `json:"result"`
				Error  any     `json:"error"`
			}
			if err := in.Decode(&reply); err != nil {
				return err
			}
			if reply.Result == nil {
				done(i, "", fmt.Errorf("%w: %v", errRefused, reply.Error))
			} else {
				done(i, *reply.Result, nil)
			}
			i++
		}
	}
	return nil
}
