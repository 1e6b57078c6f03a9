package metrics

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes the table of all metrics as a documentation page.
func Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(head)
	for _, of := range []struct {
		process Process
		title   string
	}{{process, "Every process"}, {node, "ovnkube on each node"}, {leading, "The leader of the masters"}} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n", of.title)
		for _, d := range all {
			if d.Of != of.process {
				continue
			}
			labels := "-"
			if len(d.Labels) > 0 {
				labels = "`" + strings.Join(d.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Type, labels, d.Help)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const head = `<!-- Generated from go-controller/pkg/metrics by "make generate". -->

# Metrics

Each process of ovnkube serves its metrics at ` + "`/metrics`" + ` of ` + "`--metrics-bind-address`" + `, together with those of the Go runtime and of the process
(` + "`go_*`, `process_*`" + `). A histogram has the series ` + "`_bucket`, `_sum` and `_count`" + `.

Only the leading master has the metrics of the leader. When another master takes over, counters
and histograms start again from zero there, as ` + "`rate()` and `increase()`" + ` expect after a restart; sum over the processes. Values of labels are nodes,
never objects or pods: the status of each object has its conditions, see [conditions.md](conditions.md).

Changes that have not reached ovnkube yet are not counted, and the numbers of objects and addresses appear once the leader has
read all objects. Times since the failure of a node are measured from its last answer to a probe; nodes that are not probed, or
were deleted, have none.

The numbers of dropped packets at ` + "`bridge`" + ` come from Open vSwitch. A scrape waits up to a second for it, and otherwise reports the last numbers; until they have been read
once, their series are missing.
`
