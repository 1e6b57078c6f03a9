package statefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/statefile"
)

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "file.json")
	read := func(want string) {
		t.Helper()
		if got, err := statefile.Read(path); err != nil || string(got) != want {
			t.Errorf("content is %q, %v, not %q", got, err, want)
		}
	}
	write := func(content string, changes bool) {
		t.Helper()
		if changed, err := statefile.Write(path, []byte(content), 0o600); err != nil || changed != changes {
			t.Errorf("write %q: %t, %v", content, changed, err)
		}
		read(content)
	}
	read("")
	write("one, and longer", true)
	write("one, and longer", false)
	// A writer that stopped halfway leaves the previous content.
	if err := os.WriteFile(path+".new", []byte("something that was longer than what comes next"), 0o600); err != nil {
		t.Fatal(err)
	}
	read("one, and longer")
	write("two", true)
	for range 2 {
		if err := statefile.Remove(path); err != nil {
			t.Error(err)
		}
		read("")
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := statefile.Read(path); err == nil {
		t.Error("a directory was read")
	}
	if _, err := statefile.Write(path, nil, 0o600); err == nil {
		t.Error("a directory was written")
	}
}
