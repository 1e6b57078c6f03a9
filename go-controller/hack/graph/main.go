// Command graph draws the imports between the packages of go-controller, docs/design/packages.svg, to the file
// given as argument. It fails if a package has no place in the picture, or an import does not point down.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const module = "github.com/ovnkube/ovnkube/go-controller/"

func main() {
	flag.Parse() // refuses what looks like an option
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "graph:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: graph FILE")
	}
	imports, err := list()
	if err != nil {
		return err
	}
	g, err := build(imports)
	if err != nil {
		return err
	}
	g.layout()
	return os.WriteFile(args[0], []byte(g.svg()), 0o644)
}

// list returns the packages of the module that the picture shows, and which of them each one imports. Imports of
// tests do not count.
func list() (map[string][]string, error) {
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./cmd/...", "./pkg/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg, ok := short(fields[0])
		if !ok {
			continue
		}
		imports[pkg] = nil
		for _, f := range fields[1:] {
			if to, ok := short(f); ok {
				imports[pkg] = append(imports[pkg], to)
			}
		}
	}
	return imports, nil
}

// leftOut are generated code, test harnesses and fakes, and the version.
var leftOut = []string{"generated", "testing", "nb/nbdb", "nb/nbfake", "ovs/vswitchd", "host/hostfake", "version"}

// short returns the name of a package in the picture; false if it is not shown.
func short(path string) (string, bool) {
	path, ok := strings.CutPrefix(path, module)
	path = strings.TrimPrefix(path, "pkg/")
	out := slices.ContainsFunc(leftOut, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
	return path, ok && !out
}
