package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestInstallDocument renders the overlay of docs/install.md in a directory beside the repository.
func TestInstallDocument(t *testing.T) {
	overlay(t, "install.md", 3,
		"kubernetes.io/hostname: control-plane-1\n        node-role.kubernetes.io/control-plane: \"\"\n",
		"  northbound: ssl:192.0.2.11:6641\n", "masters-southbound: ssl:192.0.2.11:6643\n", "--gateway-mode=shared\n")
}

// TestHighAvailabilityDocument renders the overlay of docs/high-availability.md.
func TestHighAvailabilityDocument(t *testing.T) {
	out := overlay(t, "high-availability.md", 2,
		"  northbound: ssl:192.0.2.11:6641,ssl:192.0.2.12:6641,ssl:192.0.2.13:6641\n", "kind: StatefulSet\n", "--gateway-mode=shared\n")
	if n := strings.Count(out, "  replicas: 3\n"); n != 2 {
		t.Errorf("%d workloads have three pods, want masters and databases", n)
	}
	// Otherwise a member that is not ready could be evicted while another one is down, and update.sh relies on the refusal.
	if n := strings.Count(out, "  maxUnavailable: 1\n  selector:\n    matchLabels:\n      app: ovn-databases\n  unhealthyPodEvictionPolicy: IfHealthyBudget\n"); n != 1 {
		t.Errorf("%d budgets of databases", n)
	}
	if strings.Contains(out, "kind: Deployment\nmetadata:\n  labels:\n    app: ovn-databases\n") {
		t.Error("the single databases are there as well")
	}
}

// overlay renders the overlay of a page, which must have the given number of files, and checks that the result contains texts.
func overlay(t *testing.T, page string, number int, texts ...string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	// The name of a file is in the paragraph before its content.
	for _, found := range regexp.MustCompile("`(my-cluster/[a-z]+\\.yaml)`[^`]*(?:`[^`\\n]+`[^`]*)*\n\n?```yaml\n((?s:.*?))```").FindAllStringSubmatch(string(text), -1) {
		files[found[1]] = found[2]
	}
	if len(files) != number {
		t.Fatalf("%d files of the overlay found: %q", len(files), files)
	}
	dir := write(t, files)
	for _, name := range []string{"base", "components", "overlays"} {
		if err := os.CopyFS(filepath.Join(dir, "ovnkube/dist", name), os.DirFS("../"+name)); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := render(&out, filepath.Join(dir, "my-cluster"), ""); err != nil {
		t.Fatal(err)
	}
	if _, images := kinds(t, out.String()); !slices.Equal(images, []string{"registry.example/network/ovnkube:v0.1.0"}) {
		t.Errorf("images %q", images)
	}
	for _, text := range []string{"CONTROLPLANE", "10.244.0.0/16/24\n"} {
		if strings.Contains(out.String(), text) {
			t.Errorf("what is to be edited is not: %q", text)
		}
	}
	for _, text := range texts {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the overlay has no %q:\n%s", text, out.String())
		}
	}
	return out.String()
}
