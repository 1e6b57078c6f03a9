// Command transitiondocs writes the transition tables of an egress address on a node and of a pod's traffic,
// docs/design/egress-ip-transitions.md, to the file given as argument. They are produced by calling the functions
// that decide, for every situation.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	flag.Parse() // refuses what looks like an option
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "transitiondocs:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: transitiondocs FILE")
	}
	var b strings.Builder
	b.WriteString(`# EgressIP: transitions

Generated from ` + "`egressip.Next` and `egressip.Steering.Plan`" + ` by ` + "`make generate`" + `; what the states mean and how they follow
each other in time is told in [egress-ip.md](egress-ip.md).

`)
	addressOnNode(&b)
	if err := podTraffic(&b); err != nil {
		return err
	}
	return os.WriteFile(args[0], []byte(b.String()), 0o644)
}

// row writes one row of a table.
func row(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// head writes the header of a table.
func head(b *strings.Builder, cells ...string) {
	row(b, cells...)
	b.WriteString(strings.Repeat("| --- ", len(cells)) + "|\n")
}
