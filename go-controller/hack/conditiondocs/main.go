// Command conditiondocs writes the reference of all conditions to the file named
// by its argument: docs/conditions.md.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conditiondocs:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: conditiondocs FILE")
	}
	var b bytes.Buffer
	if err := conditions.Markdown(&b); err != nil {
		return err
	}
	return os.WriteFile(args[0], b.Bytes(), 0o644)
}
