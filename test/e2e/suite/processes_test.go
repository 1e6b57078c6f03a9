package suite

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// seen is a process.
type seen struct {
	groups  string // /proc/PID/cgroup
	command string // preceded by its PID
}

// inGroup reports whether the process is in a control group of the cluster.
func (p seen) inGroup(cluster string) bool { return strings.Contains(p.groups, "/kin-"+cluster+"-") }

// listProcesses reads /proc. It leaves out processes that exit meanwhile, and zombies.
func listProcesses() ([]seen, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var all []seen
	for _, dir := range dirs {
		if _, err := os.Readlink(dir + "/ns/net"); err != nil {
			continue
		}
		groups, err := os.ReadFile(dir + "/cgroup")
		if err != nil {
			continue
		}
		command, err := os.ReadFile(dir + "/cmdline")
		if err != nil {
			continue
		}
		all = append(all, seen{string(groups), filepath.Base(dir) + " " +
			string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))})
	}
	return all, nil
}

// members returns the processes of the cluster. A process that survives the deletion outside the
// cluster's control groups is recognized by being in this list: its namespaces would prove nothing,
// since their numbers are reused.
func (s *suite) members(t *testing.T) map[string]bool {
	t.Helper()
	processes, err := listProcesses()
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]bool{}
	for _, p := range processes {
		if p.inGroup(s.Kin.Name) {
			members[p.command] = true
		}
	}
	if len(members) < len(nodes) {
		t.Fatalf("the cluster has %d processes, which cannot be", len(members))
	}
	return members
}
