package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ovnkube/ovnkube/test/e2e/ask"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, []string) error{
		"serve": serve, "watch": watch, "api": api, "stream": stream, "send": send, "pulse": pulse, "solicit": solicit, "speak": speak, "traffic": traffic, "forge": forge, "stray": stray, "flood": flood,
	}
	switch {
	case len(args) > 0 && ask.Has(args[0]):
		return ask.Run(ctx, "", os.Stdout, args[0], args[1:]...)
	case len(args) > 0 && commands[args[0]] != nil:
		return commands[args[0]](ctx, args[1:])
	}
	return fmt.Errorf("usage: probe serve|get|watch|ask|chase|api|stream|send|pulse|solicit|speak|survey|traffic|forge|stray|flood")
}
