package walkthrough

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// printer writes the transcript.
type printer struct {
	out io.Writer
	lab *lab.Lab
}

func (p printer) heading(format string, args ...any) {
	fmt.Fprintf(p.out, "\n=== "+format+"\n\n", args...)
}

func (p printer) say(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p printer) ok(format string, args ...any) {
	fmt.Fprintf(p.out, "    [ok] "+format+"\n\n", args...)
}

// shown prints a command as typed, and its output.
func (p printer) shown(command, output string) {
	fmt.Fprintf(p.out, "$ %s\n", command)
	if output = strings.TrimRight(output, "\n"); output != "" {
		fmt.Fprintln(p.out, output)
	}
	fmt.Fprintln(p.out)
}

// kubectl runs and shows a kubectl command.
func (p printer) kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := lab.Run(ctx, append(p.lab.Kubectl(), args...)...)
	p.shown("kubectl "+p.quote(args), out)
	return out, err
}

// on runs and shows a command on a machine of the cluster.
func (p printer) on(ctx context.Context, machine string, command ...string) (string, error) {
	out, err := p.lab.Kin.Exec(ctx, machine, command...)
	p.shown("kin exec "+machine+" -- "+p.quote(command), out)
	return out, err
}

// quote joins arguments as a user would type them, with files of the lab shown without their
// directory.
func (p printer) quote(args []string) string {
	typed := make([]string, len(args))
	for i, a := range args {
		if filepath.Dir(a) == p.lab.Dir {
			a = filepath.Base(a)
		}
		if strings.ContainsAny(a, " |\"$*") {
			a = "'" + a + "'"
		}
		typed[i] = a
	}
	return strings.Join(typed, " ")
}
