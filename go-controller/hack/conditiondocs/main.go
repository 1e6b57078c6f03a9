// Command conditiondocs writes the reference of all conditions, docs/conditions.md, to the file given as argument.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

func main() {
	flag.Parse() // refuses what looks like an option
	if err := run(flag.Args()); err != nil {
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
