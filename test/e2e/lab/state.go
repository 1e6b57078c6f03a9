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

// State is what the product has written: the text by place, e.g. "ovn-worker: ip rule".
type State map[string]string

// readNode prints what ovnkube writes on a node, without counters, without what a bridge has
// learned from traffic and without what the host-port plugin keeps when its pods are gone, in an
// order that does not depend on when a row was written.
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

// volatile are northbound tables that hold counters or timestamps rather than desired state.
var volatile = []string{"NB_Global", "Connection", "SSL"}

// State reads what the product has written on the given nodes and in the northbound database, all
// concurrently.
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
	return l.sections(ctx, node, readNode)
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
