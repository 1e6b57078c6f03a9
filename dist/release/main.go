// Command release writes the files of a release other than its binaries and its image.
//
//	release render [-image NAME] DIRECTORY   # the manifests of a kustomization, as kubectl kustomize prints them
//	release modules DIRECTORY                # the Go modules in the commands of a module, with their licenses
//	release licenses DIRECTORY               # the texts of those licenses
//	release packages LIST ROOT.TAR           # the Debian packages of a root file system, with their licenses
//	release notes VERSION CHANGELOG          # the change log's section for a version
//
// The same input gives the same output.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	image := flags.String("image", "", "render: name and tag of ovnkube's image, instead of the one in the manifests")
	if len(args) == 0 {
		return fmt.Errorf("no command given")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	rest := flags.Args()
	for _, c := range []struct {
		name string
		args int
		run  func() error
	}{
		{"render", 1, func() error { return render(out, rest[0], *image) }},
		{"modules", 1, func() error { return listModules(out, rest[0]) }},
		{"licenses", 1, func() error { return writeLicenses(out, rest[0]) }},
		{"packages", 2, func() error { return listPackages(out, rest[0], rest[1]) }},
		{"notes", 2, func() error { return notes(out, rest[0], rest[1]) }},
	} {
		if c.name != args[0] {
			continue
		}
		if len(rest) != c.args {
			return fmt.Errorf("%s takes %d arguments, not %d", c.name, c.args, len(rest))
		}
		return c.run()
	}
	return fmt.Errorf("no command %s", args[0])
}
