package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// fakeGo replaces the go command: as the command release it builds this test binary, and as
// ovnkube files that contain how they were built. There is one module besides the standard library.
const fakeGo = `#!/bin/sh
set -eu
case $1 in
build)
	for arg; do [ "${last:-}" != -o ] || out=$arg; [ "${last:-}" != -ldflags ] || flags=$arg; last=$arg; done
	case $out in
	*/) for name in ovnkube ovn-k8s-cni-overlay; do echo "$name $GOOS $GOARCH CGO_ENABLED=$CGO_ENABLED $flags" >"$out$name"; done ;;
	*) printf '#!/bin/sh\nRELEASE_COMMAND=1 exec "%%s" "$@"\n' '%[1]s' >"$out"; chmod +x "$out" ;;
	esac ;;
list) echo '{"Module": {"Path": "example.com/m", "Version": "v1.0.0", "Dir": "%[2]s"}}' ;;
env)
	shift
	for name; do case $name in GOVERSION) echo go1.99 ;; GOROOT) echo '%[2]s' ;; GOHOSTARCH) echo amd64 ;; *) exit 1 ;; esac; done ;;
*) exit 1 ;;
esac
`

// fakeImage replaces dist/images/build.sh: the image contains its name and the binary.
const fakeImage = `#!/bin/sh
set -eu
mkdir -p "$IMAGE_ROOT"
cp '%[1]s' "$IMAGE_ROOT/root.tar"
echo "ovn 1.2" >"$IMAGE_ROOT/ovnkube-packages"
{ echo "image $IMAGE of"; cat "$1/bin/ovnkube"; } >"$1/image.tar"
`

// project is a repository with those files of this one that the script needs.
type project struct {
	dir, path string
}

func newProject(t *testing.T) project {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	module := write(t, map[string]string{"LICENSE": mit})
	p := project{dir: t.TempDir(), path: t.TempDir()}
	for _, name := range []string{"base", "components", "crds", "monitoring", "overlays"} {
		if err := os.CopyFS(filepath.Join(p.dir, "dist", name), os.DirFS("../"+name)); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("release.sh")
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "dist/release/release.sh", string(script))
	p.write(t, "dist/images/build.sh", fmt.Sprintf(fakeImage, archive(t, map[string]string{"ovn/copyright": mit})))
	p.write(t, "go-controller/go.mod", "module example.com/ovnkube\n")
	p.write(t, "LICENSE", "the license\n")
	p.write(t, "CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n- What comes next.\n\n## [1.2.0] - 2026-03-01\n\n- What there is.\n")
	p.write(t, ".gitignore", "_output/\n")
	fake := project{dir: p.path}
	fake.write(t, "go", fmt.Sprintf(fakeGo, self, module))
	p.git(t, "init", "--quiet")
	p.git(t, "add", ".")
	p.git(t, "commit", "--quiet", "--message=All")
	return p
}

// write writes an executable file.
func (p project) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func (p project) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "_output/release", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run runs a command in the repository, without any user's git settings.
func (p project) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "PATH="+p.path+":"+os.Getenv("PATH"), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p project) git(t *testing.T, args ...string) {
	t.Helper()
	if out, err := p.run("git", args...); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// release runs the script and returns the names of the released files.
func (p project) release(t *testing.T) []string {
	t.Helper()
	if out, err := p.run("dist/release/release.sh", "_output"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := os.ReadDir(filepath.Join(p.dir, "_output/release"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// TestScript releases a tag: the files, the version in each of them, and their checksums.
func TestScript(t *testing.T) {
	p := newProject(t)
	p.git(t, "tag", "v1.2.0")
	want := []string{
		"LICENSE", "RELEASE-NOTES.md", "SHA256SUMS", "go-modules-licenses.txt", "go-modules.txt", "image-packages.txt",
		"ovn-k8s-cni-overlay-linux-amd64", "ovn-k8s-cni-overlay-linux-arm64", "ovnkube-ha-local.yaml", "ovnkube-ha-update.sh", "ovnkube-ha.yaml",
		"ovnkube-image-linux-amd64.tar", "ovnkube-linux-amd64", "ovnkube-linux-arm64", "ovnkube-local.yaml", "ovnkube-monitoring.yaml", "ovnkube-shared.yaml",
	}
	if names := p.release(t); !slices.Equal(names, want) {
		t.Errorf("released %q, want %q", names, want)
	}
	for name, texts := range map[string][]string{
		"RELEASE-NOTES.md":                {"- What there is.\n"},
		"LICENSE":                         {"the license\n"},
		"ovnkube-linux-arm64":             {"ovnkube linux arm64 CGO_ENABLED=0", ".Version=v1.2.0 "},
		"ovn-k8s-cni-overlay-linux-amd64": {"ovn-k8s-cni-overlay linux amd64 CGO_ENABLED=0", ".Version=v1.2.0 "},
		"ovnkube-image-linux-amd64.tar":   {"image ovnkube:v1.2.0 of\novnkube linux amd64"},
		"image-packages.txt":              {"ovn\t1.2\tMIT\n"},
		"go-modules.txt":                  {"std\tgo1.99\tMIT\n", "example.com/m\tv1.0.0\tMIT\n"},
		"go-modules-licenses.txt":         {"example.com/m v1.0.0: LICENSE\n\n" + mit},
	} {
		for _, text := range texts {
			if got := p.read(t, name); !strings.Contains(got, text) {
				t.Errorf("%s has no %q:\n%s", name, text, got)
			}
		}
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = filepath.Join(p.dir, "_output/release")
	if out, err := sums.CombinedOutput(); err != nil || strings.Count(string(out), ": OK\n") != len(want)-1 {
		t.Errorf("%v:\n%s", err, out)
	}
	for _, name := range []string{"ovnkube-linux-arm64", "ovnkube-ha-update.sh"} {
		if info, err := os.Stat(filepath.Join(sums.Dir, name)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s cannot be run: %v, %v", name, info, err)
		}
	}
	first := p.read(t, "SHA256SUMS")
	if p.release(t); p.read(t, "SHA256SUMS") != first {
		t.Errorf("another release of the same tag is different:\n%s\n%s", first, p.read(t, "SHA256SUMS"))
	}
}

// kinds counts the objects in manifests by kind, and returns the images.
func kinds(t *testing.T, text string) (map[string]int, []string) {
	t.Helper()
	counts := map[string]int{}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if object != nil {
			counts[fmt.Sprint(object["kind"])]++
		}
	}
	var images []string
	for line := range strings.Lines(text) {
		if _, image, ok := strings.Cut(line, " image: "); ok {
			images = append(images, strings.TrimSpace(image))
		}
	}
	slices.Sort(images)
	return counts, slices.Compact(images)
}

// TestReleasedManifests: each file has everything that one way of installing needs, with the released image.
func TestReleasedManifests(t *testing.T) {
	p := newProject(t)
	p.git(t, "tag", "v1.2.0")
	p.release(t)
	one := map[string]int{"CustomResourceDefinition": 3, "Namespace": 1, "DaemonSet": 3, "Deployment": 3, "StatefulSet": 0, "ConfigMap": 1}
	three := map[string]int{"CustomResourceDefinition": 3, "Namespace": 1, "DaemonSet": 3, "Deployment": 2, "StatefulSet": 1, "ConfigMap": 2}
	for name, want := range map[string]struct {
		mode  string
		kinds map[string]int
	}{
		"local": {"local", one}, "shared": {"shared", one}, "ha": {"shared", three}, "ha-local": {"local", three},
	} {
		text := p.read(t, "ovnkube-"+name+".yaml")
		counts, images := kinds(t, text)
		if !slices.Equal(images, []string{"ovnkube:v1.2.0"}) {
			t.Errorf("%s: images %q", name, images)
		}
		for kind, n := range want.kinds {
			if counts[kind] != n {
				t.Errorf("%s: %d of kind %s, want %d: %v", name, counts[kind], kind, n, counts)
			}
		}
		if strings.Count(text, "--gateway-mode="+want.mode) != 2 {
			t.Errorf("%s: not both roles have the gateway mode", name)
		}
		for _, port := range []string{"6641", "6642", "6643"} {
			addresses := "ssl:CONTROLPLANE:" + port + "\n"
			if want.kinds["StatefulSet"] > 0 {
				addresses = "ssl:MEMBER1:" + port + ",ssl:MEMBER2:" + port + ",ssl:MEMBER3:" + port + "\n"
			}
			if strings.Count(text, addresses) != 1 {
				t.Errorf("%s: not once %s", name, addresses)
			}
		}
		if strings.Contains(text, "=tcp:") {
			t.Errorf("%s: databases without TLS", name)
		}
	}
	counts, _ := kinds(t, p.read(t, "ovnkube-monitoring.yaml"))
	if want := map[string]int{"PodMonitor": 2, "PrometheusRule": 1, "ConfigMap": 1, "Secret": 1}; !maps.Equal(counts, want) {
		t.Errorf("monitoring: %v, want %v", counts, want)
	}
}

// TestTry releases a commit without a tag: the version shows that, and the notes are those of the next version.
func TestTry(t *testing.T) {
	p := newProject(t)
	p.git(t, "tag", "v1.1.0")
	p.git(t, "commit", "--quiet", "--allow-empty", "--message=More")
	p.write(t, "LICENSE", "changed\n")
	p.release(t)
	if notes := p.read(t, "RELEASE-NOTES.md"); notes != "- What comes next.\n" {
		t.Errorf("notes %q", notes)
	}
	binary := p.read(t, "ovnkube-linux-amd64")
	_, rest, _ := strings.Cut(binary, ".Version=")
	version, _, _ := strings.Cut(rest, " ")
	if !strings.HasPrefix(version, "v1.1.0-1-g") || !strings.HasSuffix(version, "-dirty") {
		t.Errorf("version %q: %s", version, binary)
	}
	if _, images := kinds(t, p.read(t, "ovnkube-local.yaml")); !slices.Equal(images, []string{"ovnkube:" + version}) {
		t.Errorf("images %q, want version %s", images, version)
	}
}

// TestNoRelease: a failed release leaves the previous one unchanged, and no other files.
func TestNoRelease(t *testing.T) {
	for name, tc := range map[string]struct {
		tag, file, text, want string
	}{
		"a changed file":         {tag: "v1.2.0", file: "LICENSE", text: "another\n", want: "M LICENSE"},
		"a file that is not its": {tag: "v1.2.0", file: "go-controller/more.go", text: "package more\n", want: "?? go-controller/more.go"},
		"no notes":               {tag: "v1.3.0", want: "says nothing of version v1.3.0"},
		"no version":             {tag: "release-2", want: "the tag release-2 is no version"},
		"no name of an image":    {tag: "v1.2.0+4", want: "the tag v1.2.0+4 is no version"},
		"no image":               {tag: "v1.2.0", file: ".git/fail", want: "cannot build the image"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.write(t, "dist/images/build.sh", "#!/bin/sh\n[ ! -e .git/fail ] || { echo cannot build the image; exit 1; }\n")
			p.git(t, "commit", "--quiet", "--all", "--message=Image")
			p.write(t, "_output/release/kept", "kept")
			p.git(t, "tag", tc.tag)
			if tc.file != "" {
				p.write(t, tc.file, tc.text)
			}
			if out, err := p.run("dist/release/release.sh", "_output"); err == nil || !strings.Contains(out, tc.want) {
				t.Errorf("%v, want an error with %q:\n%s", err, tc.want, out)
			}
			if kept := p.read(t, "kept"); kept != "kept" {
				t.Errorf("what was there has become %q", kept)
			}
			left, err := os.ReadDir(filepath.Join(p.dir, "_output"))
			if err != nil || len(left) != 1 {
				t.Errorf("left over: %v, %v", left, err)
			}
		})
	}
}

// TestReproducible: whatever builds the programs of an image or a release leaves out where and from which state of git
// that happened; the version is given.
func TestReproducible(t *testing.T) {
	for _, file := range []string{"../../Makefile", "../images/Dockerfile", "release.sh"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
			if !strings.Contains(line, "go build") || !strings.Contains(line, "./cmd/ovnkube") && !strings.Contains(line, "cd go-controller && ") {
				continue
			}
			found++
			if !strings.Contains(line, "go build -trimpath -buildvcs=false ") {
				t.Errorf("%s: %s", file, line)
			}
		}
		if found != 1 {
			t.Errorf("%s builds the programs %d times", file, found)
		}
	}
}
