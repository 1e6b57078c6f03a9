// Command referencedocs writes the reference of the constants of the network to the
// file named by its argument: docs/design/reference.md. Values come from the source
// of go-controller/pkg, which is parsed; flows and chains from the planners that make
// them. It fails where something that belongs on the page has no description.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	flag.Parse() // refuses what looks like an option
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "referencedocs:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: referencedocs FILE")
	}
	src, err := parse("pkg")
	if err != nil {
		return err
	}
	page, err := render(src)
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], []byte(page), 0o644)
}
