// Command configdocs writes the reference of all configuration options to the
// file named by its argument: docs/configuration.md.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "configdocs:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: configdocs FILE")
	}
	var b bytes.Buffer
	if err := config.Markdown(&b); err != nil {
		return err
	}
	return os.WriteFile(args[0], b.Bytes(), 0o644)
}
