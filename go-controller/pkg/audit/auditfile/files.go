package auditfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
)

// rotated is the time format in the names of rotated files.
const rotated = "2006-01-02T15-04-05.000"

// Read reads the logs at the given paths: a file and the rotated files next to it, all files of a directory, or
// standard input for Stdout.
func Read(paths []string) (records []audit.Record, problems []audit.Problem, err error) {
	for _, path := range paths {
		names, err := files(path)
		if err != nil {
			return nil, nil, err
		}
		for _, name := range names {
			more, bad, err := read(name)
			if err != nil {
				return nil, nil, err
			}
			records, problems = append(records, more...), append(problems, bad...)
		}
	}
	return records, problems, nil
}

func read(name string) ([]audit.Record, []audit.Problem, error) {
	if name == Stdout {
		return audit.Read(os.Stdin, "standard input")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, fmt.Errorf("open the log: %w", err)
	}
	defer f.Close()
	return audit.Read(f, name)
}

// files returns the files that a path stands for.
func files(path string) ([]string, error) {
	if path == Stdout {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find the log: %w", err)
	}
	directory := path
	var names []string
	if !info.IsDir() {
		directory, names = filepath.Dir(path), []string{path}
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("list the logs: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && (info.IsDir() || isRotated(filepath.Base(path), e.Name())) {
			names = append(names, filepath.Join(directory, e.Name()))
		}
	}
	return names, nil
}

// isRotated reports whether a name is that of a rotated file of a log.
func isRotated(log, name string) bool {
	ext := filepath.Ext(log)
	text, ok := strings.CutPrefix(name, strings.TrimSuffix(log, ext)+"-")
	text, end := strings.CutSuffix(text, ext)
	_, err := time.Parse(rotated, text)
	return ok && end && err == nil
}
