package cluster

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
)

// notNames are invalid names that users, scripts and empty variables may pass.
var notNames = []string{"", ".", "..", "../..", "/", "/etc", "a/b", "a/..", "../kin", "Kin", "a b", "a\n", "-a", "a-", "a.b", "*", strings.Repeat("a", 41), "ä"}

// neighbourhood returns a store in a directory with unrelated files, and a
// function that fails the test if one of these is gone.
func neighbourhood(t *testing.T) (Store, func(when string)) {
	t.Helper()
	top := t.TempDir()
	s := Store(filepath.Join(top, "kin"))
	files := []string{filepath.Join(top, "beside"), filepath.Join(string(s), "other", recordFile), filepath.Join(string(s), "foreign", "precious")}
	for _, path := range files {
		if err := writeFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s, func(when string) {
		t.Helper()
		for _, path := range files {
			if _, err := os.Stat(path); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
		}
	}
}

// TestNotNames passes invalid names to every function that takes a cluster's name: they are refused, with a
// message that says so, and nothing is touched.
func TestNotNames(t *testing.T) {
	for _, name := range notNames {
		s, intact := neighbourhood(t)
		_, openErr := s.Open(name)
		_, createErr := s.Create(context.Background(), CreateOptions{Config: config.Cluster{Name: name}}, nil)
		for what, err := range map[string]error{"Delete": s.Delete(name), "Open": openErr, "Create": createErr} {
			if err == nil || !strings.Contains(err.Error(), "is not a name") {
				t.Errorf("%s of %q: %v", what, name, err)
			}
		}
		intact(name)
	}
}

// TestNotNamesOfMachines does the same with the machines of a cluster.
func TestNotNamesOfMachines(t *testing.T) {
	s, intact := neighbourhood(t)
	cfg, err := config.Cluster{Name: "a"}.Default()
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(Record{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{recordFile, filepath.Join(machinesDir, "outside", "note")} {
		if err := writeFile(filepath.Join(string(s), "a", path), record, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	network, err := c.Network("")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range notNames {
		err := c.AddHost(name, network, []netip.Prefix{netip.MustParsePrefix("172.18.0.100/16")})
		if err == nil || !strings.Contains(err.Error(), "is not a name") {
			t.Errorf("AddHost of %q: %v", name, err)
		}
		_, findErr := c.Find(name)
		_, serviceErr := c.Service(name, "kill", "etcd")
		for what, err := range map[string]error{
			"DeleteHost": c.DeleteHost(name), "StopNode": c.StopNode(name), "KillNode": c.KillNode(name), "StartNode": c.StartNode(name),
			"Exec": c.Exec(name, []string{"true"}), "Find": findErr, "Service": serviceErr,
		} {
			if err == nil || !strings.Contains(err.Error(), "cluster a has no") {
				t.Errorf("%s of %q: %v", what, name, err)
			}
		}
		if name != "" { // the nodes' own network has no name
			if _, err := c.Network(name); err == nil || !strings.Contains(err.Error(), "no network") {
				t.Errorf("Network %q: %v", name, err)
			}
		}
		intact(name)
		if _, err := os.Stat(c.path(machinesDir, "outside", "note")); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
	}
	// The name of a node is taken even if it is off, or not created yet.
	if err := c.AddHost(c.Nodes()[0].Name, network, nil); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a host with the name of a node: %v", err)
	}
}

// TestDelete deletes a cluster at any stage, repeatedly, and nothing that
// is no cluster.
func TestDelete(t *testing.T) {
	s, intact := neighbourhood(t)
	for stage, files := range map[string][]string{
		"only a directory": {}, "machines": {"machines/m/note"}, "with its record": {recordFile, "machines/m/note", "pki/ca.crt", "anything"},
	} {
		if err := os.MkdirAll(filepath.Join(string(s), "a"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if err := writeFile(filepath.Join(string(s), "a", path), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := s.Delete("a"); err != nil {
				t.Errorf("%s: %v", stage, err)
			}
		}
		if _, err := os.Stat(filepath.Join(string(s), "a")); !os.IsNotExist(err) {
			t.Errorf("%s: the directory is still there (%v)", stage, err)
		}
	}
	if err := s.Delete("foreign"); err == nil || !strings.Contains(err.Error(), "is not the directory of a cluster: it has precious") {
		t.Errorf("a directory of somebody else's: %v", err)
	}
	intact("deletions")
	if err := os.Mkdir(filepath.Join(string(s), "No Cluster"), 0o700); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Names(); err != nil || slices.Contains(names, "No Cluster") {
		t.Errorf("clusters: %v, %v", names, err)
	}
}
