package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutation is a file with a header, an empty line, and a unified diff relative to the root of the repository.
type mutation struct {
	name, path string
	breaks     string   // what no longer holds
	tests      []string // arguments of go test: packages and flags
	sample     bool     // quick, part of the sample
	files      []string // relative to the root of the repository
}

var patched = regexp.MustCompile(`(?m)^--- a/(\S+)$`)

// read returns the mutations in a directory, by name.
func read(dir string) ([]mutation, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var all []mutation
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		m.name = strings.TrimSuffix(filepath.Base(path), ".patch")
		if m.path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// parse parses the file of a mutation.
func parse(text string) (mutation, error) {
	var m mutation
	header, diff, _ := strings.Cut(text, "\n\n")
	for line := range strings.SplitSeq(header, "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch field {
		case "Breaks":
			m.breaks = value
		case "Tests":
			m.tests = strings.Fields(value)
		case "Sample":
			m.sample = value == "yes"
		default:
			return m, fmt.Errorf("unknown header %q", line)
		}
	}
	for _, file := range patched.FindAllStringSubmatch(diff, -1) {
		m.files = append(m.files, file[1])
	}
	if m.breaks == "" || len(m.tests) == 0 || len(m.files) == 0 {
		return m, fmt.Errorf("a mutation says what it breaks (Breaks:), what notices (Tests:), and has a diff")
	}
	return m, nil
}
