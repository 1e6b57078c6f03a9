// Package build builds the parts of a cluster from source: the Kubernetes
// programs, the name server and the container images. The result is in a
// directory with a stamp for each Go module, a digest of its inputs; as long
// as a stamp matches, the module is not built again.
package build

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/component"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/image"
)

// Artifacts is the directory of everything built.
type Artifacts string

// Bin is the directory of the programs.
func (a Artifacts) Bin() string { return filepath.Join(string(a), "bin") }

// Images is the directory of the image archives.
func (a Artifacts) Images() string { return filepath.Join(string(a), "images") }

// Busybox is a directory of links to busybox, one for each of its applets.
func (a Artifacts) Busybox() string { return filepath.Join(string(a), "busybox") }

// Kubectl is the client to run on this machine.
func (a Artifacts) Kubectl() string { return filepath.Join(a.Bin(), "kubectl") }

func (a Artifacts) stamp(m module) string { return filepath.Join(string(a), m.stamp) }

// Progress receives a short progress message, to be shown in place of the
// previous one.
type Progress func(text string)

// Busybox is Debian's static busybox: the shell of the agnhost image, and on
// nodes the programs that the system lacks.
const Busybox = "/bin/busybox"

// Current reports whether everything is built from the current source.
// source is the directory of kin's modules.
func (a Artifacts) Current(source string) bool {
	return !slices.ContainsFunc(modules, func(m module) bool { return !a.current(source, m) })
}

func (a Artifacts) current(source string, m module) bool {
	want, err := m.digest(source)
	if err != nil {
		return false
	}
	have, err := os.ReadFile(a.stamp(m))
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
	for _, m := range modules {
		if a.current(source, m) { // another process may have built it
			continue
		}
		if err := a.build(ctx, source, m, progress); err != nil {
			return err
		}
	}
	return nil
}

func (a Artifacts) build(ctx context.Context, source string, m module, progress Progress) error {
	want, err := m.digest(source)
	if err != nil {
		return err
	}
	if err := m.compile(ctx, source, a.Bin(), progress); err != nil {
		return err
	}
	if err := m.finish(a, progress); err != nil {
		return err
	}
	if err := os.WriteFile(a.stamp(m), []byte(want), 0o644); err != nil {
		return fmt.Errorf("remember what was built: %w", err)
	}
	return nil
}

// lock blocks other builds until the returned function is called.
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

// finishKubernetes links the programs, and puts those for pods into images.
func (a Artifacts) finishKubernetes(progress Progress) error {
	if err := relink("kin-kubernetes", a.Kubectl()); err != nil {
		return err
	}
	if out, err := exec.Command(Busybox, "--install", "-s", a.Busybox()).CombinedOutput(); err != nil {
		return fmt.Errorf("link busybox: %w: %s", err, out)
	}
	progress("writing images")
	shell, err := shellFiles()
	if err != nil {
		return err
	}
	agnhost := image.Image{
		Names: []string{component.AgnhostImage}, Entrypoint: []string{"/agnhost"}, Command: []string{"pause"},
		Env:   []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Files: append(append(accounts(), shell...), image.File{Path: "/agnhost", Source: filepath.Join(a.Bin(), "agnhost"), Mode: 0o755}, image.File{Path: "/bin/agnhost", Link: "/agnhost"}),
	}
	if err := a.writeImage("agnhost", agnhost); err != nil {
		return err
	}
	return a.writeImage("pause", image.Image{
		Names: []string{component.PauseImage}, Entrypoint: []string{"/pause"},
		Files: []image.File{{Path: "/pause", Source: filepath.Join(a.Bin(), "pause"), Mode: 0o755}},
	})
}

// finishDNS puts the name server into an image.
func (a Artifacts) finishDNS(progress Progress) error {
	progress("writing images")
	return a.writeImage("coredns", image.Image{
		Names: []string{component.CoreDNSImage}, Entrypoint: []string{"/coredns"},
		Files: append(accounts(), image.File{Path: "/coredns", Source: filepath.Join(a.Bin(), "coredns"), Mode: 0o755}),
	})
}

// accounts are the files of users and groups, for images whose programs look them up.
func accounts() []image.File {
	return []image.File{
		{Path: "/etc/passwd", Text: "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n", Mode: 0o644},
		{Path: "/etc/group", Text: "root:x:0:\nnogroup:x:65534:\n", Mode: 0o644},
		{Path: "/tmp", Dir: true, Mode: 0o1777},
	}
}

// ImageNames are the archives in Images.
var ImageNames = []string{"pause.tar", "agnhost.tar", "coredns.tar"}

func (a Artifacts) writeImage(name string, img image.Image) error {
	file, err := os.Create(filepath.Join(a.Images(), name+".tar"))
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	defer file.Close()
	if err := image.Write(file, img); err != nil {
		return err
	}
	return file.Close()
}

// shellFiles are busybox and links to it for all of its applets.
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
