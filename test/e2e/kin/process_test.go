package kin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFirstProcess(t *testing.T) {
	directory := t.TempDir()
	machine := filepath.Join(directory, "machines", "worker")
	if err := os.MkdirAll(machine, 0o755); err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	started := strings.Fields(after)[19]
	for text, want := range map[string]string{
		"":                                     "",
		fmt.Sprintln(os.Getpid()):              "",
		fmt.Sprintln(os.Getpid(), started):     fmt.Sprintf("/proc/%d", os.Getpid()),
		fmt.Sprintln(os.Getpid(), started+"0"): "", // an earlier process with the same number
		fmt.Sprintln(1<<22+1, started):         "", // larger than any
	} {
		if err := os.WriteFile(filepath.Join(machine, "init.pid"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		have, err := FirstProcess(directory, "worker")
		if have != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, have, err, want)
		}
	}
	if _, err := FirstProcess(directory, "other"); err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("a machine that never ran: %v", err)
	}
}
