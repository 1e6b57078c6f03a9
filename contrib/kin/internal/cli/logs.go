package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/cluster"
)

func logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print the logs of a node's daemons, or of one daemon on every node",
		ArgsUsage: "NODE | COMPONENT | NODE COMPONENT",
		Flags: []cli.Flag{
			nameFlag(),
			&cli.IntFlag{Name: "tail", Usage: "only the last `NUMBER` lines of each", Value: -1, DefaultText: "all"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() < 1 || c.NArg() > 2 {
				return errors.New("kin logs takes a node, a component, or both")
			}
			k, err := opened(c)
			if err != nil {
				return err
			}
			logs, err := k.Logs(c.Args().Get(0), c.Args().Get(1))
			if err != nil {
				return err
			}
			out := bufio.NewWriter(os.Stdout)
			defer out.Flush()
			for _, log := range logs {
				prefix := ""
				if len(logs) > 1 {
					prefix = log.Machine + " " + log.Component + " | "
				}
				if err := printLog(out, log, prefix, c.Int("tail")); err != nil {
					return err
				}
			}
			return out.Flush()
		},
	}
}

// printLog copies a log, or, if last >= 0, only its last lines.
func printLog(w io.Writer, log cluster.Log, prefix string, last int) error {
	file, err := os.Open(log.Path)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer file.Close()
	var kept []string
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			if last >= 0 {
				kept = append(kept, line)
				kept = kept[max(0, len(kept)-last):]
			} else {
				fmt.Fprint(w, prefix, line)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
	}
	for _, line := range kept {
		fmt.Fprint(w, prefix, line)
	}
	return nil
}
