package build

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// module is a Go module that programs are built from. They are separate modules
// to keep their dependencies out of kin and out of each other.
type module struct {
	dir      string // in the directory of kin's modules
	stamp    string // the file with the digest of what was built
	packages []string
	// flags returns the linker's flags for the module in a directory.
	flags func(dir string) (string, error)
	// finish turns the programs into what a cluster uses.
	finish func(Artifacts, Progress) error
}

var modules = []module{
	{
		dir: "kubernetes", stamp: "stamp", flags: kubernetesFlags, finish: Artifacts.finishKubernetes,
		packages: []string{
			"./cmd/kin-kubernetes", "./cmd/pause", "k8s.io/kubernetes/test/images/agnhost",
			"github.com/containernetworking/plugins/plugins/main/loopback",
		},
	},
	{
		dir: "cni", stamp: "stamp-cni", packages: []string{"github.com/containernetworking/plugins/plugins/meta/portmap"},
		flags:  func(string) (string, error) { return "-s -w", nil },
		finish: func(Artifacts, Progress) error { return nil },
	},
	{
		dir: "dns", stamp: "stamp-dns", packages: []string{"./cmd/coredns"}, finish: Artifacts.finishDNS,
		flags: func(string) (string, error) { return "-s -w", nil },
	},
}

// compile runs the Go toolchain and counts the packages that it lists.
func (m module) compile(ctx context.Context, source, bin string, progress Progress) error {
	dir := filepath.Join(source, m.dir)
	progress(m.dir + ": counting packages")
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-deps"}, m.packages...)...)
	list.Dir = dir
	deps, err := list.Output()
	if err != nil {
		return fmt.Errorf("list packages in %s: %w", dir, withStderr(err))
	}
	total := bytes.Count(deps, []byte("\n"))
	flags, err := m.flags(dir)
	if err != nil {
		return err
	}
	args := []string{"build", "-v", "-trimpath", "-ldflags", flags, "-o", bin + "/"}
	cmd := exec.CommandContext(ctx, "go", append(args, m.packages...)...)
	cmd.Dir = dir
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
	var said []string // output lines that are not package names
	done := 0
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		line := lines.Text()
		if strings.ContainsAny(line, " :#") {
			said = append(said, line)
			if strings.HasPrefix(line, "go: downloading ") {
				progress(m.dir + ": fetching " + strings.Fields(line)[2])
			}
			continue
		}
		done++
		progress(fmt.Sprintf("%s: %d of up to %d packages, %s", m.dir, done, total, line))
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", m.dir, err, strings.Join(said[max(0, len(said)-20):], "\n"))
	}
	return nil
}

// kubernetesFlags returns flags that omit debug information and set the version.
func kubernetesFlags(dir string) (string, error) {
	version, err := kubernetesVersion(dir)
	if err != nil {
		return "", err
	}
	flags := []string{"-s", "-w"}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for name, value := range map[string]string{
			"gitVersion": version, "gitMajor": parts[0], "gitMinor": parts[1], "gitTreeState": "clean",
		} {
			flags = append(flags, fmt.Sprintf("-X=%s.%s=%s", pkg, name, value))
		}
	}
	slices.Sort(flags) // a stable order hits the build cache
	return strings.Join(flags, " "), nil
}

var kubernetesRequire = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)`)

func kubernetesVersion(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("find version of Kubernetes: %w", err)
	}
	match := kubernetesRequire.FindSubmatch(text)
	if match == nil {
		return "", fmt.Errorf("find version of Kubernetes: %s does not require it", dir)
	}
	return string(match[1]), nil
}

// digest returns a digest of everything the result depends on.
func (m module) digest(source string) (string, error) {
	sum, dir := sha256.New(), filepath.Join(source, m.dir)
	fmt.Fprintln(sum, "layout 2", runtime.Version(), runtime.GOARCH)
	files := []string{filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum"), Busybox}
	own, err := filepath.Glob(filepath.Join(dir, "cmd", "*", "*.go"))
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
