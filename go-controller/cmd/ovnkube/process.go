package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
)

// setUpLog makes klog write to the configured destination. The returned function flushes and closes it.
func setUpLog(l config.Logging) (func(), error) {
	settings := map[string]string{"v": strconv.Itoa(l.Level)}
	closeFile := func() error { return nil }
	if l.File != "" {
		// lumberjack opens the file on the first line; report a file that cannot be opened at startup.
		f, err := os.OpenFile(l.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, unwritable("--logfile", l.File, err)
		}
		if err := f.Close(); err != nil {
			return nil, unwritable("--logfile", l.File, err)
		}
		file := &lumberjack.Logger{Filename: l.File, MaxSize: l.FileMaxSize, MaxBackups: l.FileMaxBackups, MaxAge: l.FileMaxAge, Compress: true}
		closeFile = file.Close
		klog.SetOutput(file)
		settings["logtostderr"], settings["stderrthreshold"], settings["one_output"] = "false", "FATAL", "true"
	}
	set := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(set)
	for name, value := range settings {
		if err := set.Set(name, value); err != nil {
			return nil, fmt.Errorf("set up the log: -%s=%s: %w", name, value, err)
		}
	}
	return func() {
		klog.Flush()
		_ = closeFile() // nowhere left to report it
	}, nil
}

// unwritable returns an error that names the option of a file.
func unwritable(option, path string, err error) error {
	return &config.Error{Where: option, Value: path, Problem: "cannot be written: " + config.Reason(err), Allowed: "a file in a directory that exists"}
}

// writePIDFile writes the process id to path, if set. It fails if another ovnkube is running with that file. The
// returned function removes the file.
func writePIDFile(path string) (func(), error) {
	if path == "" {
		return func() {}, nil
	}
	if pid := runningUnder(path); pid != 0 {
		return nil, fmt.Errorf("--pidfile: value %q: ovnkube runs as process %d; allowed: one process a file", path, pid)
	}
	self := strconv.Itoa(os.Getpid())
	if err := os.WriteFile(path, []byte(self+"\n"), 0o644); err != nil {
		return nil, unwritable("--pidfile", path, err)
	}
	return func() {
		if data, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(data)) == self {
			_ = os.Remove(path) // if it remains, it is found to be stale at the next startup
		}
	}, nil
}

// runningUnder returns the process in a pid file if that is another process of this program; the pid of a killed
// process may have been reused.
func runningUnder(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid == os.Getpid() {
		return 0
	}
	name := func(pid int) string {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return string(comm)
	}
	if other := name(pid); other == "" || other != name(os.Getpid()) {
		return 0
	}
	return pid
}
