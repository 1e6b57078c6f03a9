package kin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// FirstProcess returns the directory in /proc of the first process of a node or an outside host, which is in the
// namespaces of the machine. directory is the cluster's.
func FirstProcess(directory, machine string) (string, error) {
	text, err := os.ReadFile(filepath.Join(directory, "machines", machine, "init.pid"))
	if err != nil {
		return "", fmt.Errorf("machine %s is not running: %w", machine, err)
	}
	var pid int
	var started string
	if _, err := fmt.Sscan(string(text), &pid, &started); err != nil {
		return "", fmt.Errorf("first process of machine %s: %w", machine, err)
	}
	process := filepath.Join("/proc", strconv.Itoa(pid))
	if err := alive(process, started); err != nil {
		return "", fmt.Errorf("machine %s is not running: %w", machine, err)
	}
	return process, nil
}

// alive returns an error if a process has ended, or is not the one that started at the given time.
func alive(process, started string) error {
	text, err := os.ReadFile(filepath.Join(process, "stat"))
	if err != nil {
		return err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name may contain any character
	if len(fields) < 20 || fields[19] != started || fields[0] == "Z" {
		return errors.New("its first process has ended")
	}
	return nil
}

// ContainerProcess returns the directory in /proc of the first process of a container on a node.
func ContainerProcess(directory, node, container string) (string, error) {
	first, err := FirstProcess(directory, node)
	if err != nil {
		return "", err
	}
	root := filepath.Join(first, "root")
	pid, err := os.ReadFile(filepath.Join(root, "run/containerd/io.containerd.runtime.v2.task/k8s.io", container, "init.pid"))
	if err != nil {
		return "", fmt.Errorf("container %s is not running on %s: %w", container, node, err)
	}
	return filepath.Join(root, "proc", strings.TrimSpace(string(pid))), nil
}
