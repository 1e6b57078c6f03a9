package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// platforms are the platforms for which binaries are released; they may differ in their modules.
var platforms = []string{"linux/amd64", "linux/arm64"}

// goModule is a module that is linked into a binary.
type goModule struct {
	Path, Version, Dir string
	Main               bool
}

func (m goModule) String() string { return m.Path + " " + m.Version }

// linked returns the modules of the packages that the commands of a module consist of, in
// the order of their paths. The standard library comes first, under the name std.
func linked(dir string) ([]goModule, error) {
	found := map[string]goModule{}
	for _, platform := range platforms {
		system, arch, _ := strings.Cut(platform, "/")
		list, err := goCommand(dir, []string{"GOOS=" + system, "GOARCH=" + arch}, "list", "-deps", "-json=Module", "./cmd/...")
		if err != nil {
			return nil, err
		}
		decoder := json.NewDecoder(strings.NewReader(list))
		for {
			var pkg struct{ Module *goModule }
			err := decoder.Decode(&pkg)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("list packages: %w", err)
			}
			if pkg.Module != nil && !pkg.Module.Main {
				found[pkg.Module.String()] = *pkg.Module
			}
		}
	}
	env, err := goCommand(dir, nil, "env", "GOVERSION", "GOROOT")
	if err != nil {
		return nil, err
	}
	version, root, _ := strings.Cut(strings.TrimSpace(env), "\n")
	var all []goModule
	for _, m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b goModule) int { return cmp.Compare(a.String(), b.String()) })
	return append([]goModule{{Path: "std", Version: version, Dir: root}}, all...), nil
}

func goCommand(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// legal matches the names of files with licenses, or with notices that a license requires.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// texts returns the legal texts of a module, by their names: those at its top, and those
// of third-party code deeper in it. The standard library's vendored modules have
// the same authors as the library itself.
func texts(m goModule) (map[string]string, error) {
	found := map[string]string{}
	err := filepath.WalkDir(m.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(m.Dir, path)
		switch {
		case entry.IsDir() && (entry.Name() == "testdata" || m.Path == "std" && name != "."):
			return filepath.SkipDir
		case !entry.Type().IsRegular() || !legal.MatchString(entry.Name()) || strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		found[name] = string(text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read licenses of %s: %w", m, err)
	}
	return found, nil
}

// licenses returns the licenses of a module, according to the texts at its top.
func licenses(m goModule) ([]string, error) {
	files, err := texts(m)
	if err != nil {
		return nil, err
	}
	var names []string
	for name, text := range files {
		if !strings.Contains(name, string(filepath.Separator)) {
			names = append(names, identify(text)...)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no known license in %s", m, m.Dir)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// listModules writes a line for each module that is linked into the commands of a module.
func listModules(out io.Writer, dir string) error {
	all, err := linked(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range all {
		names, err := licenses(m)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, err := fmt.Fprintf(out, "%s\t%s\t%s\n", m.Path, m.Version, strings.Join(names, ", ")); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// writeLicenses writes the legal texts of these modules.
func writeLicenses(out io.Writer, dir string) error {
	all, err := linked(dir)
	if err != nil {
		return err
	}
	for _, m := range all {
		files, err := texts(m)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if _, err := fmt.Fprintf(out, "======== %s: %s\n\n%s\n\n", m, name, strings.TrimSpace(files[name])); err != nil {
				return err
			}
		}
	}
	return nil
}
