package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/audit/auditfile"
)

// historyCommand is the command "ovnkube egress history", which only reads files.
func (e *egress) historyCommand(wrong cli.OnUsageErrorFunc, group cli.ActionFunc) *cli.Command {
	flags := []cli.Flag{
		&cli.StringSliceFlag{Name: "log", Usage: "The audit log of a master: a `FILE`, a directory of files, or - for standard input; may be repeated"},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FORMAT` of the answer: text, json or yaml", Value: "text", Destination: &e.output},
	}
	at := &cli.StringFlag{Name: "at", Usage: "The `TIME` that is asked about, in RFC 3339, as 2026-03-01T12:00:00Z; any where it is absent"}
	since := &cli.StringFlag{Name: "since", Usage: "How long ago that was, a `DURATION` as 90m, 24h or 30d; any time where it is absent"}
	return &cli.Command{
		Name: "history", Usage: "say who was behind an address, from audit logs", OnUsageError: wrong, HideHelpCommand: true, Action: group,
		Subcommands: []*cli.Command{{
			Name: "address", ArgsUsage: "ADDRESS", Usage: "the node that had an egress address, and the pods that left with it", OnUsageError: wrong,
			HideHelpCommand: true, Flags: append([]cli.Flag{at}, flags...), Action: e.historyOfAddress,
		}, {
			Name: "pod", ArgsUsage: "NAMESPACE/NAME", Usage: "the egress addresses that a pod left with", OnUsageError: wrong,
			HideHelpCommand: true, Flags: append([]cli.Flag{since}, flags...), Action: e.historyOfPod,
		}},
	}
}

func (e *egress) historyOfAddress(c *cli.Context) error {
	address, err := e.address(c)
	if err != nil {
		return err
	}
	var at time.Time
	if text := c.String("at"); text != "" {
		if at, err = time.Parse(time.RFC3339, text); err != nil {
			return fmt.Errorf("--at=%s: no time; allowed: RFC 3339, as 2026-03-01T12:00:00Z", text)
		}
	}
	return e.history(c, func(t *audit.Timeline, problems []audit.Problem) audit.History {
		return t.AddressHistory(address, at, problems)
	})
}

func (e *egress) historyOfPod(c *cli.Context) error {
	key, err := e.key(c, "pod")
	if err != nil {
		return err
	}
	now, since := e.now(), time.Time{}
	if text := c.String("since"); text != "" {
		ago, ok := duration(text)
		if !ok {
			return fmt.Errorf("--since=%s: no duration; allowed: a number and d, h, m or s, as 30d or 24h", text)
		}
		since = now.Add(-ago)
	}
	return e.history(c, func(t *audit.Timeline, problems []audit.Problem) audit.History {
		return t.PodHistory(key, since, now, problems)
	})
}

// duration parses the durations of time.ParseDuration, and days.
func duration(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		const most = 100 * 366
		return time.Duration(n) * 24 * time.Hour, err == nil && n > 0 && n <= most
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}

// history reads the logs and writes the answer.
func (e *egress) history(c *cli.Context, ask func(*audit.Timeline, []audit.Problem) audit.History) error {
	paths := c.StringSlice("log")
	if len(paths) == 0 {
		return errors.New("--log is missing: name the audit logs of all masters")
	}
	records, problems, err := auditfile.Read(paths)
	if err != nil {
		return err
	}
	h := ask(audit.NewTimeline(records), problems)
	e.notInPlace = !h.Complete
	return e.write(h)
}
