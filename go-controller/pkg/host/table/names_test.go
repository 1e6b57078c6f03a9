package table

import (
	"os"
	"path/filepath"
	"testing"
)

// tree writes files below a temporary directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestNames: names are read as iproute2 reads them.
func TestNames(t *testing.T) {
	vendor := tree(t, map[string]string{
		"rt_tables":                "# reserved values\n#\n255\tlocal\n100 blue\n102 vendor\n",
		"rt_tables.d/10-more.conf": "103 of-a-package\n104 moved\n",
	})
	etc := tree(t, map[string]string{
		"rt_tables":                  "0x64 red # comment\n  105   indented\n010 decimal\n106 two words\n0xffffffff most\n107#none\n-1 minus\nnonsense\n\n108\n0 unspec\n4294967296 over\n",
		"rt_tables.d/20-b.conf":      "204 moved\n",
		"rt_tables.d/10-a.conf":      "203 moved\n205 early\n",
		"rt_tables.d/.hidden.conf":   "206 hidden\n",
		"rt_tables.d/other.conf.bak": "207 backup\n",
		"rt_tables.d/README":         "208 readme\n",
		"rt_tables.d/dir.conf/x":     "",
	})
	if err := os.Symlink("nowhere", filepath.Join(etc, "rt_tables.d", "30-dangling.conf")); err != nil {
		t.Fatal(err)
	}
	f := Finder{Dirs: []string{"/nonexistent", vendor, etc}}
	names, err := f.names()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"default": 253, "main": 254, "local": 255, "blue": 100, "vendor": 102, "of-a-package": 103, "moved": 204, "early": 205,
		"red": 100, "indented": 105, "decimal": 10, "two": 106, "most": 0xffffffff,
	}
	for name, number := range want {
		if names[name] != number {
			t.Errorf("%s is %d, want %d", name, names[name], number)
		}
	}
	for name, number := range names {
		if want[name] != number {
			t.Errorf("%s is %d", name, number)
		}
	}
}

// TestNamesWithoutFiles: the three tables that the kernel always has have names even on a host
// without any files.
func TestNamesWithoutFiles(t *testing.T) {
	f := Finder{Dirs: []string{"/nonexistent"}}
	for name, want := range map[string]int{"default": 253, "main": 254, "local": 255} {
		if table, ok, err := f.table(name); table.Number != want || !ok || err != nil {
			t.Errorf("%s: %+v, %t, %v", name, table, ok, err)
		}
	}
}

// TestNumbers: a table can be given by number in the forms that ip accepts.
func TestNumbers(t *testing.T) {
	f := Finder{}
	for text, want := range map[string]int{"100": 100, "0x64": 100, "4294967295": 4294967295} {
		if table, ok, err := f.table(text); table.Number != want || !ok || err != nil {
			t.Errorf("%s: %+v, %t, %v", text, table, ok, err)
		}
	}
	for _, text := range []string{"0", "0x0", "4294967296", "0x", "1_0", "0b1", "-1", ""} {
		if table, ok, err := f.table(text); ok || err != nil {
			t.Errorf("%q: %+v, %t, %v", text, table, ok, err)
		}
	}
}
