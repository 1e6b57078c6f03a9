package cli

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagsFirst lets flags follow arguments: the flag package stops at the first
// argument, but people type "kin node kill ovn-worker --name test". It
// moves a command's flags before its arguments. A program
// to run in a machine, and its flags, are left unchanged.
func flagsFirst(commands []*cli.Command, args []string) []string {
	if len(args) == 0 {
		return args
	}
	out, rest := []string{args[0]}, args[1:]
	var leaf *cli.Command
walk:
	for len(rest) > 0 {
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(rest[0]) })
		switch {
		case i >= 0:
			leaf, commands = commands[i], commands[i].Subcommands
			out, rest = append(out, rest[0]), rest[1:]
		case leaf == nil && strings.HasPrefix(rest[0], "-"): // a global flag
			n := 1
			if !strings.Contains(rest[0], "=") && rest[0] == "--state" && len(rest) > 1 {
				n = 2
			}
			out, rest = append(out, rest[:n]...), rest[n:]
		default:
			break walk
		}
	}
	if leaf == nil || leaf.SkipFlagParsing {
		return append(out, rest...)
	}
	flags, words := split(leaf, rest)
	return append(append(out, flags...), words...)
}

// split separates a command's flags from its other arguments.
func split(command *cli.Command, args []string) (flags, words []string) {
	program := len(args)
	if command.Name == execName {
		program = programStart(command, args)
	}
	for i := 0; i < program; i++ {
		if len(args[i]) < 2 || args[i][0] != '-' || args[i] == "--" {
			words = append(words, args[i])
			continue
		}
		n := flagWidth(command, args[i:program])
		flags = append(flags, args[i:i+n]...)
		i += n - 1
	}
	return flags, append(words, args[program:]...)
}

// programStart returns the index at which the program to run begins: after a "--", otherwise after
// the first word, which is the machine.
func programStart(command *cli.Command, args []string) int {
	if i := slices.Index(args, "--"); i >= 0 && words(command, args[:i]) == 1 {
		return i
	}
	for i := 0; i < len(args); i++ {
		if args[i] == "" || args[i][0] != '-' {
			return i + 1
		}
		i += flagWidth(command, args[i:]) - 1
	}
	return len(args)
}

func words(command *cli.Command, args []string) int {
	n := 0
	for i := 0; i < len(args); i++ {
		if args[i] == "" || args[i][0] != '-' {
			n++
		} else {
			i += flagWidth(command, args[i:]) - 1
		}
	}
	return n
}

// flagWidth returns how many arguments the flag at the beginning consists of.
func flagWidth(command *cli.Command, args []string) int {
	name := strings.TrimLeft(args[0], "-")
	if strings.Contains(name, "=") || len(args) == 1 {
		return 1
	}
	for _, f := range command.Flags {
		if _, boolean := f.(*cli.BoolFlag); boolean && slices.Contains(f.Names(), name) {
			return 1
		}
	}
	if name == "help" || name == "h" {
		return 1
	}
	return 2
}
