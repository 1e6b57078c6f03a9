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
	command string // after its number
}

// inGroup reports whether the process is in a control group of a cluster.
func (p seen) inGroup(cluster string) bool { return strings.Contains(p.groups, "/kin-"+cluster+"-") }

// listProcesses reads /proc. Processes that go while we look are left out, and
// those that ended and wait to be reaped: they are nowhere.
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

// members are the processes of the cluster. One that leaves the control groups of the cluster
// when it is deleted is told by that: the namespaces that it lives in say nothing, since the
// numbers of those that are gone are given to new ones.
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
