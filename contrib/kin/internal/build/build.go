// Package build makes what a cluster is made of from source: the Kubernetes
// programs and the container images. The result lies in a directory with a
// stamp of what it was made from; as long as the stamp fits, nothing is built
// again.
package build

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/component"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/image"
)

// Artifacts is the directory of everything built.
type Artifacts string

// Bin is where the programs are.
func (a Artifacts) Bin() string { return filepath.Join(string(a), "bin") }

// Images is where the image archives are.
func (a Artifacts) Images() string { return filepath.Join(string(a), "images") }

// Busybox is a directory of links to busybox by the name of all it can do.
func (a Artifacts) Busybox() string { return filepath.Join(string(a), "busybox") }

// Kubectl is the client to run on this machine.
func (a Artifacts) Kubectl() string { return filepath.Join(a.Bin(), "kubectl") }

func (a Artifacts) stamp() string { return filepath.Join(string(a), "stamp") }

// Progress hears what is going on: a short text, to be shown in place of the
// one before.
type Progress func(text string)

// Busybox is Debian's static busybox: the shell of the agnhost image, and on
// nodes what the system lacks.
const Busybox = "/bin/busybox"

const (
	agnhostPackage  = "k8s.io/kubernetes/test/images/agnhost"
	loopbackPackage = "github.com/containernetworking/plugins/plugins/main/loopback"
)

// packages are what is compiled, in the module in the source directory.
var packages = []string{"./cmd/kin-kubernetes", "./cmd/pause", agnhostPackage, loopbackPackage}

// Current says whether everything is built from the source as it is now.
func (a Artifacts) Current(source string) bool {
	want, err := stampOf(source)
	if err != nil {
		return false
	}
	have, err := os.ReadFile(a.stamp())
	return err == nil && string(have) == want
}

// Build builds what is not built yet.
func (a Artifacts) Build(ctx context.Context, source string, progress Progress) error {
	if a.Current(source) {
		return nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("find the Go toolchain: %w", err)
	}
	for _, dir := range []string{a.Bin(), a.Images(), a.Busybox()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make directory for programs: %w", err)
		}
	}
	unlock, err := a.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if a.Current(source) { // somebody else was faster
		return nil
	}
	want, err := stampOf(source)
	if err != nil {
		return err
	}
	if err := a.compile(ctx, source, progress); err != nil {
		return err
	}
	if err := relink("kin-kubernetes", a.Kubectl()); err != nil {
		return err
	}
	if out, err := exec.Command(Busybox, "--install", "-s", a.Busybox()).CombinedOutput(); err != nil {
		return fmt.Errorf("link busybox: %w: %s", err, out)
	}
	progress("writing images")
	if err := a.writeImages(); err != nil {
		return err
	}
	if err := os.WriteFile(a.stamp(), []byte(want), 0o644); err != nil {
		return fmt.Errorf("remember what was built: %w", err)
	}
	return nil
}

// lock keeps a second build out until the returned function is called.
func (a Artifacts) lock() (func(), error) {
	dir, err := os.Open(string(a))
	if err != nil {
		return nil, fmt.Errorf("lock build: %w", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock build: %w", err)
	}
	return func() { dir.Close() }, nil
}

// compile runs the Go toolchain and counts the packages it names.
func (a Artifacts) compile(ctx context.Context, source string, progress Progress) error {
	progress("counting packages")
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-deps"}, packages...)...)
	list.Dir = source
	deps, err := list.Output()
	if err != nil {
		return fmt.Errorf("list packages in %s: %w", source, withStderr(err))
	}
	total := bytes.Count(deps, []byte("\n"))
	version, err := kubernetesVersion(source)
	if err != nil {
		return err
	}
	args := []string{"build", "-v", "-trimpath", "-ldflags", linkerFlags(version), "-o", a.Bin() + "/"}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	// The go command stops its compilers when it is interrupted, not when killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("prepare compiler: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start compiler: %w", err)
	}
	var said []string // what is not a package's name
	done := 0
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		line := lines.Text()
		if strings.ContainsAny(line, " :#") {
			said = append(said, line)
			if strings.HasPrefix(line, "go: downloading ") {
				progress("fetching " + strings.Fields(line)[2])
			}
			continue
		}
		done++
		progress(fmt.Sprintf("%d of up to %d packages, %s", done, total, line))
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("compile Kubernetes: %w\n%s", err, strings.Join(said[max(0, len(said)-20):], "\n"))
	}
	return nil
}

// linkerFlags make small programs that tell their version.
func linkerFlags(version string) string {
	flags := []string{"-s", "-w"}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for name, value := range map[string]string{
			"gitVersion": version, "gitMajor": parts[0], "gitMinor": parts[1], "gitTreeState": "clean",
		} {
			flags = append(flags, fmt.Sprintf("-X=%s.%s=%s", pkg, name, value))
		}
	}
	slices.Sort(flags) // the same flags in the same order hit the build cache
	return strings.Join(flags, " ")
}

var kubernetesRequire = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)`)

func kubernetesVersion(source string) (string, error) {
	text, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("find version of Kubernetes: %w", err)
	}
	match := kubernetesRequire.FindSubmatch(text)
	if match == nil {
		return "", fmt.Errorf("find version of Kubernetes: %s does not require it", source)
	}
	return string(match[1]), nil
}

// stampOf is a digest of everything the result depends on.
func stampOf(source string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, "layout 2", runtime.Version(), runtime.GOARCH)
	files := []string{filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum"), Busybox}
	own, err := filepath.Glob(filepath.Join(source, "cmd", "*", "*.go"))
	if err != nil {
		return "", fmt.Errorf("list sources: %w", err)
	}
	for _, name := range append(files, own...) {
		file, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("read source: %w", err)
		}
		fmt.Fprintln(sum, filepath.Base(name))
		_, err = io.Copy(sum, file)
		file.Close()
		if err != nil {
			return "", fmt.Errorf("read source: %w", err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (a Artifacts) writeImages() error {
	shell, err := shellFiles()
	if err != nil {
		return err
	}
	accounts := []image.File{
		{Path: "/etc/passwd", Text: "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n", Mode: 0o644},
		{Path: "/etc/group", Text: "root:x:0:\nnogroup:x:65534:\n", Mode: 0o644},
		{Path: "/tmp", Dir: true, Mode: 0o1777},
	}
	agnhost := image.Image{
		Name: component.AgnhostImage, Entrypoint: []string{"/agnhost"}, Command: []string{"pause"},
		Env:   []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Files: append(append(accounts, shell...), image.File{Path: "/agnhost", Source: filepath.Join(a.Bin(), "agnhost"), Mode: 0o755}, image.File{Path: "/bin/agnhost", Link: "/agnhost"}),
	}
	pause := image.Image{
		Name: component.PauseImage, Entrypoint: []string{"/pause"},
		Files: []image.File{{Path: "/pause", Source: filepath.Join(a.Bin(), "pause"), Mode: 0o755}},
	}
	for name, img := range map[string]image.Image{"agnhost.tar": agnhost, "pause.tar": pause} {
		if err := writeImage(filepath.Join(a.Images(), name), img); err != nil {
			return err
		}
	}
	return nil
}

func writeImage(path string, img image.Image) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	defer file.Close()
	if err := image.Write(file, img); err != nil {
		return err
	}
	return file.Close()
}

// shellFiles are busybox under the names of all it can do.
func shellFiles() ([]image.File, error) {
	program, err := elf.Open(Busybox)
	if err != nil {
		return nil, fmt.Errorf("look at busybox: %w", err)
	}
	defer program.Close()
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s is not static; install the package busybox-static", Busybox)
		}
	}
	out, err := exec.Command(Busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("ask busybox what it can do: %w", withStderr(err))
	}
	files := []image.File{{Path: "/bin/busybox", Source: Busybox, Mode: 0o755}}
	for _, name := range strings.Fields(string(out)) {
		if name != "busybox" {
			files = append(files, image.File{Path: "/bin/" + name, Link: "busybox"})
		}
	}
	return files, nil
}

func relink(target, path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("link program: %w", err)
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("link program: %w", err)
	}
	return nil
}

func withStderr(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
