package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestParseHierarchies(t *testing.T) {
	hybrid := `24 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 24 0:26 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/x,name=systemd
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct
40 24 0:29 / /elsewhere rw - cgroup cgroup rw,cpu,cpuacct
`
	want := "[{/sys/fs/cgroup/unified true } {/sys/fs/cgroup/systemd false name=systemd} {/sys/fs/cgroup/cpu,cpuacct false cpu,cpuacct}]"
	if got := fmt.Sprint(parseHierarchies(hybrid)); got != want {
		t.Errorf("hybrid: got  %s\nwant %s", got, want)
	}
	pure := "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	if got := fmt.Sprint(parseHierarchies(pure)); got != "[{/sys/fs/cgroup true }]" {
		t.Errorf("version 2: got %s", got)
	}
}

func TestDelegate(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"empty group":          {map[string]string{"cgroup.type": "domain\n", "cgroup.procs": ""}, "+pids"},
		"group with a process": {map[string]string{"cgroup.type": "domain\n", "cgroup.procs": "7\n"}, ""},
		"root":                 {map[string]string{"cgroup.procs": "1\n7\n"}, "+pids"},
	} {
		dir := t.TempDir()
		c.files["cgroup.controllers"], c.files["cgroup.subtree_control"] = "pids\n", ""
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		delegate(dir)
		got, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, c.want)
		}
	}
}
