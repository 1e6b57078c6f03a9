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

// TestInstallDocument renders the overlay of docs/install.md, which lies beside the repository.
func TestInstallDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	// The name of a file stands in the paragraph before its content.
	for _, found := range regexp.MustCompile("`(my-cluster/[a-z]+\\.yaml)`[^`]*(?:`[^`\\n]+`[^`]*)*\n\n?```yaml\n((?s:.*?))```").FindAllStringSubmatch(string(text), -1) {
		files[found[1]] = found[2]
	}
	if len(files) != 3 {
		t.Fatalf("%d files of the overlay found: %q", len(files), files)
	}
	dir := write(t, files)
	for _, name := range []string{"base", "overlays"} {
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
	for _, text := range []string{
		"kubernetes.io/hostname: control-plane-1\n        node-role.kubernetes.io/control-plane: \"\"\n",
		"address=ssl:192.0.2.11:6641\n", "masters-southbound: ssl:192.0.2.11:6643\n", "--gateway-mode=shared\n",
	} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the overlay has no %q:\n%s", text, out.String())
		}
	}
}
