// Command referencedocs writes the reference of the network's constants, docs/design/reference.md, to the file
// given as argument. Values are parsed from the source in go-controller/pkg; flows and chains come from the
// planners that produce them. It fails if something that belongs on the page has no description.
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
