package suite

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// traces are what a cluster could leave on the machine, apart from processes.
type traces map[string][]string

// groups matches the control groups that a cluster creates, or would create if it were careless;
// the machine's own come and go.
var groups = regexp.MustCompile(`/(kin-|k8s\.io|kubepods|containerd)`)

func tracesOf(t *testing.T) traces {
	t.Helper()
	found, err := findTraces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func findTraces(ctx context.Context) (traces, error) {
	found := traces{}
	netns, err := lab.Run(ctx, "ip", "netns", "list")
	if err != nil {
		return nil, err
	}
	found["network namespaces"] = strings.Fields(netns)
	links, err := lab.Run(ctx, "ip", "-o", "link")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(links) {
		found["links"] = append(found["links"], strings.Fields(line)[1])
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	found["mounts"] = strings.Split(string(mounts), "\n")
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && groups.MatchString(path) {
			found["cgroups"] = append(found["cgroups"], path)
		}
		return nil // a group may disappear meanwhile
	})
	return found, err
}

// since lists what exists now and did not before, except what belongs to other clusters on the
// machine, which may come and go meanwhile.
func (now traces) since(before traces, others []string) []string {
	belongs := func(item string) bool {
		return slices.ContainsFunc(others, func(name string) bool {
			return strings.Contains(item, "kin-"+name+"-") || strings.Contains(item, "/kin/"+name+"/")
		})
	}
	var left []string
	for kind, list := range now {
		for _, item := range list {
			if !slices.Contains(before[kind], item) && !belongs(item) {
				left = append(left, kind+": "+item)
			}
		}
	}
	slices.Sort(left)
	return left
}

// deletion deletes the cluster and checks that nothing is left.
func (s *suite) deletion(t *testing.T, before traces) {
	members := s.members(t)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := lab.Until(t.Context(), 20*time.Second, "the cluster's traces to be gone", func(ctx context.Context) error {
		now, err := findTraces(ctx)
		if err != nil {
			return err
		}
		others, err := s.Kin.Clusters(ctx)
		if err != nil {
			return err
		}
		processes, err := listProcesses()
		if err != nil {
			return err
		}
		left := now.since(before, others)
		for _, p := range processes {
			if p.inGroup(s.Kin.Name) || members[p.command] {
				left = append(left, "process: "+p.command)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("left on the machine:\n%s", strings.Join(left, "\n"))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
