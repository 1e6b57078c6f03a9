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
)

// State is what the product has written: by place, e.g. "ovn-worker: ip rule",
// the text of it.
type State map[string]string

// readNode prints what ovnkube writes on a node, without counters and what a bridge has
// learned from traffic, without what the plugin for host ports keeps when its pods have
// gone, and in an order that does not depend on when a row was written.
const readNode = `set -e
section() { echo "### $1"; }
section iptables; iptables-save | sed -e '/^#/d' -e '/CNI-HOSTPORT/d' -e 's/ \[[0-9]*:[0-9]*\]$//'
section ip6tables; ip6tables-save | sed -e '/^#/d' -e '/CNI-HOSTPORT/d' -e 's/ \[[0-9]*:[0-9]*\]$//'
section rules; ip rule; ip -6 rule
section routes; ip route | sort; ip -6 route | grep -v '^fe80' | sed 's/ expires [0-9]*sec//' | sort
section tables; ip route show table all | grep -v 'table local' | grep ' table ' | sort; ip -6 route show table all | grep ' table ' | grep -v 'table local' | sed 's/ expires [0-9]*sec//' | sort
section addresses; for dev in breth0 ovn-k8s-mp0 $(cd /sys/class/net; ls -d eth[1-9] 2>/dev/null); do ip -o addr show dev $dev | sed -e 's/^[0-9]*: //' -e 's/ valid_lft.*//' | sort; done
section flows; ovs-ofctl --no-stats --names dump-flows breth0 | grep cookie | grep -v cookie=0x6f766e6c | sort
section ports; ovs-vsctl list-ports breth0 | sort; ovs-vsctl --bare --columns=external_ids find Interface external_ids:iface-id!='""' | grep -o 'iface-id=[^ ]*' | sort
section external_ids; ovs-vsctl get Open_vSwitch . external_ids | tr ',' '\n' | grep 'ovn-\|ovn_' | sort
`

// volatile are northbound tables that count or time rather than say what is wanted.
var volatile = []string{"NB_Global", "Connection", "SSL"}

// State reads what the product has written, on the given nodes and in the
// northbound database, all at the same time.
func (l *Lab) State(ctx context.Context, nodes ...string) (State, error) {
	reads := []func() (State, error){
		func() (State, error) {
			dump, err := l.Kin.Exec(ctx, ControlPlane, "ovsdb-client", "--no-leader-only", "--format=list", "dump", "unix:/run/ovn/ovnnb_db.sock", "OVN_Northbound")
			return northbound(dump), err
		},
		func() (State, error) { return l.nodeObjects(ctx) },
	}
	for _, node := range nodes {
		reads = append(reads, func() (State, error) { return l.nodeState(ctx, node) })
	}
	return gather(reads)
}

// gather reads at once what becomes one state.
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

// nodeState is what is on one node.
func (l *Lab) nodeState(ctx context.Context, node string) (State, error) {
	return l.sections(ctx, node, readNode)
}

// sections are what a script prints on a node, by the titles that it prints.
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

// nodeObjects is what the Node objects have of ours.
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

// northbound splits a dump into tables, whose rows it sorts.
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

var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// Anonymous is the state with each UUID replaced, for the comparison of rows
// that were made anew.
func (s State) Anonymous() State {
	anonymous := make(State, len(s))
	for place, text := range s {
		rows := strings.Split(uuids.ReplaceAllString(text, "UUID"), "\n\n")
		slices.Sort(rows)
		anonymous[place] = strings.Join(rows, "\n\n")
	}
	return anonymous
}

// Diff lists what two states differ in, one line a line; empty for equal ones.
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
