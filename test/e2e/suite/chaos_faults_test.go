package suite

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/chaos"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// processAt returns the process that a fault is injected into.
func (c *chaosTest) processAt(f chaos.Fault) process {
	p := c.processes[slices.IndexFunc(c.processes, func(p process) bool { return p.name == f.Target })]
	p.node = f.Node
	return p
}

// undoing reverts a fault some time after it began.
type undoing struct {
	after time.Duration
	do    func(context.Context) error
}

// begin begins the faults of a step and returns the functions that revert them, in order. If one
// fails to begin, they revert those that began.
func (c *chaosTest) begin(t *testing.T, step chaos.Step) (all []undoing, err error) {
	for _, f := range step.Faults {
		undo, failed := c.beginOne(t, f)
		if undo != nil {
			all = append(all, undoing{f.For, undo})
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f, failed))
		}
	}
	slices.SortStableFunc(all, func(a, b undoing) int { return int(a.after - b.after) })
	return all, err
}

// beginOne begins a fault; undo is nil if nothing reverts it.
func (c *chaosTest) beginOne(t *testing.T, f chaos.Fault) (undo func(context.Context) error, err error) {
	ctx := t.Context()
	exec := func(ctx context.Context, node string, command ...string) error {
		_, err := c.Kin.Exec(ctx, node, command...)
		return err
	}
	service := func(verb, daemon string) func(context.Context) error {
		return func(ctx context.Context) error { return c.Service(ctx, verb, f.Node, daemon) }
	}
	switch f.Kind {
	case chaos.Kill, chaos.Stop, chaos.CutOff:
		p := c.processAt(f)
		if f.Kind == chaos.CutOff {
			return c.drops(f.Node, cutOffRules(p))(ctx)
		}
		pid, err := c.pid(ctx, p)
		if err != nil {
			return nil, err
		}
		if f.Kind == chaos.Kill {
			return nil, exec(ctx, f.Node, "kill", "-KILL", pid)
		}
		return func(ctx context.Context) error { return exec(ctx, f.Node, "kill", "-CONT", pid) }, exec(ctx, f.Node, "kill", "-STOP", pid)
	case chaos.LinkDown:
		return func(ctx context.Context) error { return exec(ctx, f.Node, "ip", "link", "set", "eth0", "up") },
			exec(ctx, f.Node, "ip", "link", "set", "eth0", "down")
	case chaos.Loss:
		return c.drops(f.Node, uplinkDrops("numgen random mod 100 < "+strings.TrimSuffix(f.Target, "%")))(ctx)
	case chaos.Partition:
		return c.partition(ctx, f.Node, f.Target)
	case chaos.Power:
		return func(ctx context.Context) error { return c.Kin.Node(ctx, "start", f.Node) }, c.Kin.Node(ctx, "kill", f.Node)
	case chaos.APIServer:
		return service("start", "kube-apiserver"), service("stop", "kube-apiserver")(ctx)
	case chaos.Disk:
		// Only the test's own small disk, never the machine's.
		return func(ctx context.Context) error { return exec(ctx, f.Node, "rm", "/var/lib/ovn/full") },
			exec(ctx, f.Node, "sh", "-ec", `test "$(stat -f -c %T /var/lib/ovn)" = tmpfs
if dd if=/dev/zero of=/var/lib/ovn/full bs=4k count=16384 2>/dev/null; then exit 1; fi`)
	case chaos.Bridge:
		return nil, exec(ctx, f.Node, "ovs-vsctl", "--timeout=10", "--no-wait", "del-br", f.Target)
	case chaos.Flush:
		return nil, exec(ctx, f.Node, "sh", "-ec", flushes[f.Target])
	case chaos.Leader:
		c.killLeader(t, f.Target)
		return nil, nil
	}
	return nil, fmt.Errorf("no fault of the kind %q", f.Kind)
}

// flushes are commands that delete what ovnkube has in a node's kernel, by kind.
var flushes = map[string]string{
	"iptables": `for save in iptables ip6tables; do
	for table in nat mangle filter; do
		$save-save -t $table | sed -n 's/^:\(OVN-KUBE[^ ]*\) .*/\1/p' | while read chain; do $save -w -t $table -F $chain; done
	done
done`,
	"nftables": `nft list tables | grep ' ovn-kube' | while read table family name; do nft flush table $family $name; done`,
	// The kernel's own rules have priority 0 and 32766 and above.
	"rules": `for family in -4 -6; do
	ip $family rule | sed 's/:.*//' | sort -un | while read priority; do
		if [ $priority -gt 0 ] && [ $priority -lt 32766 ]; then
			while ip $family rule del priority $priority 2>/dev/null; do :; done
		fi
	done
done`,
}

// uplinkDrops returns nft rules that drop matching packets which a node sends through its uplink.
// The userspace switch sends through a socket, which comes before the egress hook of the device.
func uplinkDrops(match string) dropRules {
	return dropRules{"netdev", `add chain netdev TABLE out { type filter hook egress device "eth0" priority 0; }
add rule netdev TABLE out ` + match + ` counter drop`}
}

// dropRules are nft commands that add rules which count and drop, to a table of a family that they call TABLE.
type dropRules struct{ family, commands string }

// in returns the commands with the name of the table, preceded by the one that adds it.
func (d dropRules) in(table string) string {
	return strings.ReplaceAll("add table "+d.family+" TABLE\n"+d.commands, "TABLE", table)
}

var dropped = regexp.MustCompile(`counter packets ([0-9]+)`)

// drops adds rules to a table of their own on a node, and later deletes it: that fails if the rules
// dropped nothing, since then there was no fault. Two faults may drop at the same node at once.
func (c *chaosTest) drops(node string, rules dropRules) func(context.Context) (func(context.Context) error, error) {
	return func(ctx context.Context) (func(context.Context) error, error) {
		table := fmt.Sprintf("e2e%d", c.tables.Add(1))
		_, err := c.Kin.Exec(ctx, node, "nft", rules.in(table))
		return func(ctx context.Context) error {
			out, err := c.Kin.Exec(ctx, node, "sh", "-ec", fmt.Sprintf("nft list table %s %s; nft delete table %[1]s %[2]s", rules.family, table))
			if err != nil {
				return err
			}
			n := 0
			for _, match := range dropped.FindAllStringSubmatch(out, -1) {
				packets, err := strconv.Atoi(match[1])
				if err != nil {
					return err
				}
				n += packets
			}
			if n == 0 {
				return fmt.Errorf("nothing was dropped on %s:\n%s", node, out)
			}
			return nil
		}, err
	}
}

// partition drops all unicast traffic between two nodes.
func (c *chaosTest) partition(ctx context.Context, a, b string) (func(context.Context) error, error) {
	var undo []func(context.Context) error
	var errs []error
	for _, from := range []struct{ node, to string }{{a, b}, {b, a}} {
		mac, err := c.Kin.Exec(ctx, from.to, "cat", "/sys/class/net/eth0/address")
		if err == nil {
			var one func(context.Context) error
			one, err = c.drops(from.node, uplinkDrops("ether daddr "+strings.TrimSpace(mac)))(ctx)
			undo = append(undo, one)
		}
		errs = append(errs, err)
	}
	return func(ctx context.Context) error {
		var errs []error
		for _, one := range undo {
			errs = append(errs, one(ctx))
		}
		return errors.Join(errs...)
	}, errors.Join(errs...)
}

// restarted waits until the containers of a pod have started since the given time.
func (c *chaosTest) restarted(t *testing.T, pod lab.Pod, since time.Time) {
	t.Helper()
	if _, err := c.WaitPodSince(t.Context(), pod.Namespace, pod.Name, since, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
}
