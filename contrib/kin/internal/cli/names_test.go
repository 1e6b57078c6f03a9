package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// failing runs kin and returns its standard error; it fails the test
// if kin succeeds.
func failing(t *testing.T, args ...string) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = w
	status := Run(append([]string{"kin"}, args...))
	os.Stderr = stderr
	w.Close()
	said, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if status == 0 {
		t.Errorf("kin %q succeeded", args)
	}
	return string(said)
}

// TestNoNames calls each command that takes a cluster with invalid names: all of them
// report that, and no existing file is touched.
func TestNoNames(t *testing.T) {
	top := t.TempDir()
	state, precious := filepath.Join(top, "kin"), filepath.Join(top, "kin", "a", "precious")
	if err := os.MkdirAll(precious, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "..", ".", "a/..", "/", "../kin"} {
		for _, command := range [][]string{
			{"create", "cluster"}, {"delete", "cluster"}, {"get", "nodes"}, {"get", "kubeconfig"},
			{"exec", "m", "true"}, {"node", "stop", "m"}, {"node", "kill", "m"}, {"node", "start", "m"},
			{"host", "add", "--ip=172.18.0.9", "m"}, {"host", "delete", "m"}, {"load", "image", "file"},
			{"service", "start", "m", "d"}, {"service", "stop", "m", "d"}, {"service", "restart", "m", "d"}, {"service", "kill", "m", "d"},
			{"service", "list", "m"}, {"logs", "m"},
		} {
			args := append([]string{"--state=" + state}, command[:1]...)
			if command[0] == "exec" || command[0] == "logs" {
				args = append(append(args, "--name="+name), command[1:]...)
			} else {
				args = append(append(append(args, command[1]), "--name="+name), command[2:]...)
			}
			if said := failing(t, args...); !strings.Contains(said, "is not a name") {
				t.Errorf("kin %q: %s", args, said)
			}
			if _, err := os.Stat(precious); err != nil {
				t.Fatalf("kin %q: %v", args, err)
			}
		}
	}
	if said := failing(t, "--state=", "delete", "cluster", "--name=a"); !strings.Contains(said, "--state is empty") {
		t.Errorf("no directory: %s", said)
	}
}
