package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func sample(t *testing.T) Image {
	t.Helper()
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("program text"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Image{
		Names: []string{"kin.local/test:1"}, Entrypoint: []string{"/program"}, Command: []string{"pause"},
		Files: []File{
			{Path: "/usr/bin/link", Link: "/program"},
			{Path: "/program", Source: source, Mode: 0o755},
			{Path: "/tmp", Dir: true, Mode: 0o1777},
			{Path: "/tmp/note", Text: "hello", Mode: 0o644},
		},
	}
}

func entries(t *testing.T, archive []byte) (map[string][]byte, []tar.Header) {
	t.Helper()
	content, headers := map[string][]byte{}, []tar.Header{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return content, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		content[header.Name] = text
		headers = append(headers, *header)
	}
}

func TestArchive(t *testing.T) {
	var out bytes.Buffer
	img := sample(t)
	if err := Write(&out, img); err != nil {
		t.Fatal(err)
	}
	files, _ := entries(t, out.Bytes())
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 || manifest[0].RepoTags[0] != img.Names[0] {
		t.Fatalf("manifest is %+v", manifest)
	}
	var config struct {
		Config struct{ Entrypoint, Cmd []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	if strings.Join(append(config.Config.Entrypoint, config.Config.Cmd...), " ") != "/program pause" {
		t.Errorf("runs %v %v", config.Config.Entrypoint, config.Config.Cmd)
	}
	layer := files[manifest[0].Layers[0]]
	sum := sha256.Sum256(layer)
	if config.RootFS.DiffIDs[0] != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("layer is %s", config.RootFS.DiffIDs[0])
	}
	content, headers := entries(t, layer)
	var listing []string
	for _, h := range headers {
		line := h.FileInfo().Mode().String() + " " + h.Name
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		listing = append(listing, line)
	}
	want := `-rwxr-xr-x program
dtrwxrwxrwx tmp/
-rw-r--r-- tmp/note
drwxr-xr-x usr/
drwxr-xr-x usr/bin/
Lrwxrwxrwx usr/bin/link -> /program`
	if got := strings.Join(listing, "\n"); got != want {
		t.Errorf("layer holds\n%s\nwant\n%s", got, want)
	}
	if string(content["program"]) != "program text" || string(content["tmp/note"]) != "hello" {
		t.Errorf("content is %q", content)
	}
}

func TestSameInputSameBytes(t *testing.T) {
	img := sample(t)
	var first, second bytes.Buffer
	if err := Write(&first, img); err != nil {
		t.Fatal(err)
	}
	img.Files[0], img.Files[1] = img.Files[1], img.Files[0]
	if err := Write(&second, img); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the order in which files are given changes the image")
	}
}

func TestUncleanPathIsRefused(t *testing.T) {
	for _, path := range []string{"relative", "/a/../b", "/a/"} {
		if err := Write(io.Discard, Image{Names: []string{"x"}, Files: []File{{Path: path}}}); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "tmp"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "program"), []byte("text"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("program", filepath.Join(dir, "bin", "link")); err != nil {
		t.Fatal(err)
	}
	got, err := Tree(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []File{
		{Path: "/bin", Dir: true, Mode: 0o755},
		{Path: "/bin/link", Link: "program", Mode: 0o777},
		{Path: "/bin/program", Source: filepath.Join(dir, "bin", "program"), Mode: 0o750},
		{Path: "/tmp", Dir: true, Mode: 0o1777},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Tree(dir); err == nil {
		t.Error("a pipe got into an image")
	}
}
