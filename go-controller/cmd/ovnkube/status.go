package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
)

// shortest is the minimum interval of a watch: each time all objects are read.
const shortest = time.Second

// statusCommand is the command "ovnkube egress status".
func (e *egress) statusCommand(wrong cli.OnUsageErrorFunc, flags []cli.Flag) *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "say how the egress features are: nodes, addresses, conditions, and what is not in place", OnUsageError: wrong, HideHelpCommand: true,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "Ask again and again, and answer where something has changed", Destination: &e.watch},
			&cli.DurationFlag{Name: "interval", Usage: "How long to wait between two questions, with --watch", Value: 10 * time.Second, Destination: &e.interval},
		}, flags...),
		Action: e.status,
	}
}

func (e *egress) status(c *cli.Context) error {
	if err := e.format(); err != nil {
		return err
	}
	switch {
	case c.NArg() > 0:
		return fmt.Errorf("%s: unexpected argument; see %s --help", c.Args().First(), c.Command.HelpName)
	case e.watch && e.interval < shortest:
		return fmt.Errorf("--interval=%s: too short; allowed: %s or longer", e.interval, shortest)
	case e.watch:
		return e.watchStatus(c.Context)
	}
	return e.answer(c.Context, func(cluster *explain.Cluster) (answer, explain.Header, error) {
		s := cluster.Status()
		return s, s.Header, nil
	})
}

// watchStatus answers repeatedly until the context ends. After the first answer, errors of the API server are
// retried.
func (e *egress) watchStatus(ctx context.Context) error {
	clients, err := e.connect(e.kubeconfig, e.context)
	if err != nil {
		return err
	}
	for last := (*explain.Status)(nil); ; {
		cluster, err := e.read(ctx, clients)
		select {
		case <-ctx.Done(): // whatever the result of the last read
			return nil
		default:
		}
		switch {
		case err != nil && last == nil:
			return err
		case err != nil:
			fmt.Fprintf(e.errs, "ovnkube egress: %s; trying again\n", strings.ReplaceAll(err.Error(), "\n", " "))
		default:
			s := cluster.Status()
			e.notInPlace = !s.InPlace
			if last == nil || !s.Same(*last) {
				if err := e.writeNext(s, last == nil); err != nil {
					return err
				}
			}
			last = &s
		}
		if !e.wait(ctx, e.interval) {
			return nil
		}
	}
}

// writeNext writes one of several answers.
func (e *egress) writeNext(a answer, first bool) error {
	separator := map[string]string{"text": "\n", "yaml": "---\n"}[e.output]
	if !first {
		if _, err := fmt.Fprint(e.out, separator); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	return e.write(a)
}

// wait waits for d, and reports whether the context is not done.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
