package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/machine"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

// stopTimeout is how long an orderly shutdown may take.
const stopTimeout = 45 * time.Second

// Delete removes a cluster and everything that belongs to it, at whatever stage it
// is. It is no error if the cluster does not exist. A directory in which kin has not
// created a cluster is left unchanged.
func (s Store) Delete(name string) error {
	c, err := s.cluster(name)
	if err != nil {
		return err
	}
	unlock, err := c.lock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.checkMade(); err != nil {
		return err
	}
	names, err := c.Machines()
	if err != nil {
		return err
	}
	if err := each(names, func(name string) error { return machine.Kill(c.Machine(name)) }); err != nil {
		return fmt.Errorf("end machines: %w", err)
	}
	// Processes that never joined a machine's own group are in the cluster's.
	if err := machine.RemoveCgroup(c.cgroup()); err != nil {
		return err
	}
	if err := removeDirectory(c.path()); err != nil {
		return err
	}
	_ = os.Remove(string(s)) // only when it is empty
	return nil
}

// checkMade returns an error if a directory is not a cluster's: a cluster has a record or, if
// the creation did not get that far, nothing but machines.
func (c *Cluster) checkMade() error {
	entries, err := os.ReadDir(c.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look into the cluster's directory: %w", err)
	}
	foreign := ""
	for _, e := range entries {
		switch e.Name() {
		case recordFile:
			return nil
		case machinesDir:
		default:
			foreign = e.Name()
		}
	}
	if foreign != "" {
		return fmt.Errorf("%s is not the directory of a cluster: it has %s, and no %s", c.path(), foreign, recordFile)
	}
	return nil
}

// removeDirectory retries for a while: children of a killed creation may
// still be writing.
func removeDirectory(path string) error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	var err error
	for range 40 {
		if err = os.RemoveAll(path); err == nil {
			return nil
		}
		<-again.C
	}
	return fmt.Errorf("remove cluster directory: %w", err)
}

// StopNode shuts a node down gracefully.
func (c *Cluster) StopNode(name string) error {
	return c.off(name, func(d machine.Dir) error { return machine.Stop(d, stopTimeout) })
}

// KillNode cuts a node's power.
func (c *Cluster) KillNode(name string) error { return c.off(name, machine.Kill) }

func (c *Cluster) off(name string, end func(machine.Dir) error) error {
	if _, err := c.node(name); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := end(c.Machine(name)); err != nil {
		return err
	}
	return c.unplug(name)
}

// StartNode boots a node that is off.
func (c *Cluster) StartNode(name string) error {
	if _, err := c.node(name); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return c.boot(name)
}

// Services returns the status of a machine's daemons.
func (c *Cluster) Services(name string) ([]supervise.Status, error) {
	return c.Service(name, "status", "")
}

// Service starts, stops, restarts or kills a machine's daemon.
func (c *Cluster) Service(machineName, verb, service string) ([]supervise.Status, error) {
	d, err := c.Find(machineName)
	if err != nil {
		return nil, err
	}
	p, on := d.Running()
	if !on {
		return nil, fmt.Errorf("machine %s is off", machineName)
	}
	return supervise.Call(p.Root()+supervise.ControlSocket, verb, service)
}

// Exec runs a program in a machine.
func (c *Cluster) Exec(name string, argv []string) error {
	d, err := c.Find(name)
	if err != nil {
		return err
	}
	return machine.Command(d, argv, nil)
}

// tailLines is how much of a log a failure shows.
const tailLines = 15

// Diagnose names the daemons that are not well, with the end of their logs.
func (c *Cluster) Diagnose(machines []string) string {
	var b strings.Builder
	for _, name := range machines {
		d := c.Machine(name)
		units, err := c.Services(name)
		if err != nil {
			fmt.Fprintf(&b, "\n%s: %v\n", name, err)
			tail(&b, d.InitLog(), tailLines)
			continue
		}
		for _, u := range units {
			if u.State == supervise.StateReady && u.Restarts == 0 || u.State == supervise.StateWaiting {
				continue
			}
			fmt.Fprintf(&b, "\n%s on %s is %s, started again %d times: %s\n", u.Name, name, u.State, u.Restarts, u.Problem)
			tail(&b, filepath.Join(d.LogDir(), u.Name+".log"), tailLines)
		}
	}
	return b.String()
}

func tail(w io.Writer, path string, lines int) {
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintf(w, "  %v\n", err)
		return
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for _, line := range all[max(0, len(all)-lines):] {
		fmt.Fprintf(w, "  %s\n", line)
	}
}

// Log is one daemon's log on one machine.
type Log struct{ Machine, Component, Path string }

// Logs lists the logs of a machine, or of a component on every machine. The
// component may narrow a machine's logs.
func (c *Cluster) Logs(subject, componentName string) ([]Log, error) {
	machines, err := c.Machines()
	if err != nil {
		return nil, err
	}
	of := machines
	if slices.Contains(machines, subject) {
		of = []string{subject}
	} else {
		componentName = subject
	}
	var logs []Log
	for _, m := range of {
		found, err := filepath.Glob(filepath.Join(c.Machine(m).LogDir(), "*.log"))
		if err != nil {
			return nil, fmt.Errorf("list logs: %w", err)
		}
		for _, path := range found {
			name := strings.TrimSuffix(filepath.Base(path), ".log")
			if componentName == "" || name == componentName {
				logs = append(logs, Log{Machine: m, Component: name, Path: path})
			}
		}
	}
	if len(logs) == 0 {
		return nil, fmt.Errorf("cluster %s has neither a machine nor a component %q with a log", c.name, subject)
	}
	return logs, nil
}
