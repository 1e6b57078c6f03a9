// Command show prints the figures of an end-to-end run, or compares those of two runs.
//
//	show FILE
//	show FILE FILE
package main

import (
	"fmt"
	"os"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "show:", err)
		os.Exit(1)
	}
}

func run(paths []string) error {
	var runs [][]figures.Figure
	for _, path := range paths {
		run, err := read(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		runs = append(runs, run)
	}
	switch len(runs) {
	case 1:
		return figures.WriteTable(os.Stdout, runs[0])
	case 2:
		return figures.WriteComparison(os.Stdout, runs[0], runs[1])
	}
	return fmt.Errorf("usage: show FILE [FILE]")
}

func read(path string) ([]figures.Figure, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return figures.Read(file)
}
