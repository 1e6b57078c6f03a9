package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// State is what the product has written: the text by place, e.g. "ovn-worker: ip rule".
type State map[string]string

// readNode prints what ovnkube writes on a node. It starts as few processes as possible, since tests
// read states all the time; written selects and sorts.
const readNode = `set -e
section() { echo "### $1"; }
section iptables; iptables-save
section ip6tables; ip6tables-save
section rules; ip rule; ip -6 rule
section routes; ip route show table all; ip -6 route show table all
section addresses; ip -o addr show
section flows; ovs-ofctl --no-stats --names dump-flows breth0
section ports; ovs-vsctl --bare -- list-ports breth0 -- --columns=external_ids find Interface external_ids:iface-id!='""'
section external_ids; ovs-vsctl get Open_vSwitch . external_ids | tr ',' '\n'
`

var (
	counters   = regexp.MustCompile(` \[\d+:\d+\]$`)
	expiry     = regexp.MustCompile(` expires \d*sec`)
	interfaces = regexp.MustCompile(`^\d+: (?:breth0|ovn-k8s-mp0|eth[1-9]) `)
	validity   = regexp.MustCompile(` valid_lft.*`)
	pod        = regexp.MustCompile(`iface-id=\S+`)
)

// HandOn begins rules that exist for half a minute after an EgressService has moved.
const HandOn = "-A OVN-KUBE-EGRESS-SVC-HAND-ON "

// LearnedFlow is part of each flow that a bridge has learned from traffic.
var LearnedFlow = fmt.Sprintf("cookie=%#x", host.LearnedCookie)

// written selects what ovnkube writes from the lines of each section of readNode: without counters,
// without what a bridge has learned from traffic, rules that hand packets on after a move, and what the host-port plugin keeps when
// its pods are gone, in an order that does not depend on when a row was written.
var written = map[string]func(line string) string{
	"iptables":  rule,
	"ip6tables": rule,
	"routes": func(line string) string {
		inTable := strings.Contains(line, " table ")
		if strings.Contains(line, " table local") || strings.HasPrefix(line, "fe80") && !inTable {
			return ""
		}
		return expiry.ReplaceAllString(line, "")
	},
	"addresses": func(line string) string {
		if !interfaces.MatchString(line) {
			return ""
		}
		_, line, _ = strings.Cut(line, ": ")
		return validity.ReplaceAllString(line, "")
	},
	"flows": func(line string) string {
		if !strings.Contains(line, "cookie") || strings.Contains(line, LearnedFlow) {
			return ""
		}
		return line
	},
	"ports": func(line string) string {
		if strings.Contains(line, "=") {
			return pod.FindString(line)
		}
		return line
	},
	"external_ids": func(line string) string {
		if !strings.Contains(line, "ovn") {
			return ""
		}
		return strings.Trim(line, "{}")
	},
}

// alwaysThere are the sections that have something on every node of a cluster; "ip6tables" is empty if it is of IPv4 only.
var alwaysThere = []string{"iptables", "rules", "routes", "addresses", "flows", "ports", "external_ids"}

// rule leaves out counters and comments, and the chains of the host-port plugin.
func rule(line string) string {
	if strings.HasPrefix(line, "#") || strings.Contains(line, "CNI-HOSTPORT") || strings.HasPrefix(line, HandOn) {
		return ""
	}
	return counters.ReplaceAllString(line, "")
}

// volatile are northbound tables that hold counters or timestamps rather than desired state.
var volatile = []string{"NB_Global", "Connection", "SSL"}

// State reads what the product has written on the given nodes and in the northbound database, all
// concurrently.
func (l *Lab) State(ctx context.Context, nodes ...string) (State, error) {
	reads := []func() (State, error){
		func() (State, error) {
			dump, err := l.Kin.Exec(ctx, ControlPlane, "ovsdb-client", "--no-leader-only", "--format=list", "dump", "unix:/run/ovn/ovnnb_db.sock", "OVN_Northbound")
			if err != nil {
				return nil, err
			}
			state := northbound(dump)
			return state, whole(state)
		},
		func() (State, error) { return l.nodeObjects(ctx) },
	}
	for _, node := range nodes {
		reads = append(reads, func() (State, error) { return l.nodeState(ctx, node) })
	}
	return gather(reads)
}

// gather runs the reads concurrently and merges their states.
func gather(reads []func() (State, error)) (State, error) {
	states, errs := make([]State, len(reads)), make([]error, len(reads))
	var wg sync.WaitGroup
	for i, read := range reads {
		wg.Go(func() { states[i], errs[i] = read() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all := State{}
	for _, s := range states {
		maps.Copy(all, s)
	}
	return all, nil
}

// nodeState reads the state of one node.
func (l *Lab) nodeState(ctx context.Context, node string) (State, error) {
	state, err := l.sections(ctx, node, readNode)
	if err != nil {
		return nil, err
	}
	for title, of := range written {
		place := node + ": " + title
		var chosen []string
		for line := range strings.Lines(state[place]) {
			if line = of(strings.TrimSpace(line)); line != "" {
				chosen = append(chosen, line)
			}
		}
		if !strings.HasSuffix(title, "tables") { // where the order counts
			slices.Sort(chosen)
		}
		state[place] = strings.Join(chosen, "\n")
	}
	for _, title := range alwaysThere {
		if place := node + ": " + title; state[place] == "" { // two states without it would be equal
			return nil, fmt.Errorf("nothing was read of %s", place)
		}
	}
	return state, nil
}

// sections runs a script on a node and returns its output by the titles that it prints.
func (l *Lab) sections(ctx context.Context, node, script string) (State, error) {
	out, err := l.Kin.Exec(ctx, node, "sh", "-c", script)
	if err != nil {
		return nil, err
	}
	state := State{}
	for part := range strings.SplitSeq(out, "### ") {
		if title, text, found := strings.Cut(part, "\n"); found && title != "" {
			state[node+": "+title] = text
		}
	}
	return state, nil
}

// nodeObjects returns the product's annotations and labels of Node objects.
func (l *Lab) nodeObjects(ctx context.Context) (State, error) {
	list, err := l.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	state := State{}
	for i := range list.Items {
		n := &list.Items[i]
		var ours []string
		for _, set := range []map[string]string{n.Annotations, n.Labels} {
			for k, v := range set {
				if strings.Contains(k, "ovn.org/") {
					ours = append(ours, k+"="+v)
				}
			}
		}
		slices.Sort(ours)
		state["annotations and labels of "+n.Name] = strings.Join(ours, "\n")
	}
	return state, nil
}

// northbound splits a dump into tables and sorts their rows.
func northbound(dump string) State {
	state := State{}
	var table string
	var rows []string
	flush := func() {
		if table != "" && !slices.Contains(volatile, table) {
			slices.Sort(rows)
			state["northbound "+table] = strings.Join(rows, "\n\n")
		}
		rows = nil
	}
	for block := range strings.SplitSeq(dump, "\n\n") {
		block = strings.TrimSpace(block)
		if head, rest, _ := strings.Cut(block, "\n"); strings.HasSuffix(head, " table") {
			flush()
			table, block = strings.TrimSuffix(head, " table"), strings.TrimSpace(rest)
		}
		if block != "" {
			rows = append(rows, block)
		}
	}
	flush()
	return state
}

// whole returns an error if a state of the northbound database lacks what is in that of every cluster.
func whole(northbound State) error {
	for _, table := range []string{"Logical_Router", "Logical_Switch", "Logical_Router_Policy"} {
		if northbound["northbound "+table] == "" {
			return fmt.Errorf("no %s was read", table)
		}
	}
	return nil
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// Anonymous returns the state with each UUID replaced, to compare rows that were recreated.
func (s State) Anonymous() State {
	anonymous := make(State, len(s))
	for place, text := range s {
		rows := strings.Split(uuids.ReplaceAllString(text, "UUID"), "\n\n")
		slices.Sort(rows)
		anonymous[place] = strings.Join(rows, "\n\n")
	}
	return anonymous
}

// Diff lists the differences between two states, one per line; empty if they are equal.
func (s State) Diff(other State) string {
	var b strings.Builder
	places := State{}
	maps.Copy(places, s)
	maps.Copy(places, other)
	for _, place := range slices.Sorted(maps.Keys(places)) {
		if s[place] == other[place] {
			continue
		}
		fmt.Fprintf(&b, "%s:\n", place)
		was, is := lines(s[place]), lines(other[place])
		for _, line := range was {
			if !slices.Contains(is, line) {
				fmt.Fprintf(&b, "  - %s\n", line)
			}
		}
		for _, line := range is {
			if !slices.Contains(was, line) {
				fmt.Fprintf(&b, "  + %s\n", line)
			}
		}
	}
	return b.String()
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
