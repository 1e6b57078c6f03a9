package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// notes writes the section of a version from a change log in the format of Keep a Changelog:
// "## [1.2.0] - 2026-03-01" and the text until the next such heading. The version of a tag
// is preceded by a v; Unreleased is the next version.
func notes(out io.Writer, version, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read change log: %w", err)
	}
	heading := "## [" + strings.TrimPrefix(version, "v") + "]"
	var section strings.Builder
	inside := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## ") {
			inside = strings.HasPrefix(line, heading)
			continue
		}
		if inside {
			section.WriteString(line)
		}
	}
	body := strings.TrimSpace(section.String())
	if body == "" {
		return fmt.Errorf("%s says nothing of version %s", file, version)
	}
	_, err = fmt.Fprintln(out, body)
	return err
}
