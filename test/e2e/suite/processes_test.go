package suite

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// seen is a process: where it lives and what it is.
type seen struct {
	network, mounts string // its namespaces, e.g. "net:[4026531840]"
	groups, command string
}

// inGroup tells whether the process is in a control group of a cluster; with an
// empty name, of any cluster.
func (p seen) inGroup(cluster string) bool {
	if cluster != "" {
		cluster += "-"
	}
	return strings.Contains(p.groups, "/kin-"+cluster)
}

// listProcesses reads /proc. Processes that go while we look are left out, and
// those that ended and wait to be reaped: they are nowhere.
func listProcesses() ([]seen, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var all []seen
	for _, dir := range dirs {
		network, err := os.Readlink(dir + "/ns/net")
		if err != nil {
			continue
		}
		mounts, err := os.Readlink(dir + "/ns/mnt")
		if err != nil {
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
		all = append(all, seen{network, mounts, string(groups), filepath.Base(dir) + " " +
			string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))})
	}
	return all, nil
}

// worlds are the namespaces that processes of the cluster live in, and nobody else.
// The numbers of namespaces that are gone are given to new ones, so processes of
// other clusters may well have them later.
func (s *suite) worlds(t *testing.T) map[string]bool {
	t.Helper()
	processes, err := listProcesses()
	if err != nil {
		t.Fatal(err)
	}
	worlds := map[string]bool{}
	for _, p := range processes {
		if p.inGroup(s.Kin.Name) {
			worlds[p.network], worlds[p.mounts] = true, true
		}
	}
	if len(worlds) < len(nodes) {
		t.Fatalf("the processes of the cluster live in %d namespaces, which cannot be", len(worlds))
	}
	for _, p := range processes {
		if !p.inGroup(s.Kin.Name) {
			delete(worlds, p.network)
			delete(worlds, p.mounts)
		}
	}
	return worlds
}
