package ask

import (
	"context"
	"fmt"
	"io"
)

// commands are what Run can run.
var commands = map[string]func(context.Context, Namespace, io.Writer, []string) error{
	"get": get, "survey": survey, "ask": ask, "chase": chase,
}

// Has reports whether Run can run a command.
func Has(command string) bool { return commands[command] != nil }

// Run runs a command with its arguments in a network namespace, and writes the answer to out.
func Run(ctx context.Context, from Namespace, out io.Writer, command string, args ...string) error {
	if !Has(command) {
		return fmt.Errorf("unknown command %q", command)
	}
	return commands[command](ctx, from, out, args)
}
