// Command metricdocs writes the reference of all metrics, docs/metrics.md, to the file given as argument.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
)

func main() {
	flag.Parse() // refuses what looks like an option
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "metricdocs:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: metricdocs FILE")
	}
	var b bytes.Buffer
	if err := metrics.Markdown(&b); err != nil {
		return err
	}
	return os.WriteFile(args[0], b.Bytes(), 0o644)
}
