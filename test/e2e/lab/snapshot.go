package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readHost prints what any program may have put on a node, not only what ovnkube is known to write.
// It leaves out what changes by itself: counters, ages, interface indexes, known neighbors and
// connections; the files of the container runtime, the kubelet, kin and etcd, which differ for each
// pod; and the status columns of Open vSwitch.
const readHost = `set -e
section() { echo "### $1"; }
section links; ip -d -o link | sed -E -e 's/^[0-9]+: //' -e 's/ numtxqueues.*//' | sort
section addresses; ip -o addr | sed -E -e 's/^[0-9]+: //' -e 's/ valid_lft.*//' -e 's/\\//' | sort
section routes; { ip route show table all; ip -6 route show table all; } | sed -E 's/ expires -?[0-9]+sec//' | sort
section rules; ip rule; ip -6 rule
section neighbours; { ip neigh show nud permanent; ip -6 neigh show nud permanent; ip neigh show proxy; ip -6 neigh show proxy; } | sort
rules() { sed -E -e '/^#/d' -e '/^COMMIT/d' -e 's/ \[[0-9]+:[0-9]+\]$//' | awk '/^\*/ { table = $1; next } { print table, $0 }'; }
section iptables; iptables-save | rules
section ip6tables; ip6tables-save | rules
section nftables; nft -s list ruleset 2>/dev/null | awk '/^table/ { table = $2 " " $3; next } /^\t[a-z]+ .*{$/ { chain = $1 " " $2 } { gsub(/\t/, ""); print table, chain ":", $0 }'
section queues; tc qdisc show | sed -E -e 's/ refcnt.*//' | sort
section parameters; sysctl -a -r '^net\.' 2>/dev/null | grep -v -E 'nf_conntrack_count|tcp_fastopen_key|stable_secret' | sort
section switch; ovsdb-client --format=list dump unix:/run/openvswitch/db.sock Open_vSwitch |
	sed -E -e '/^(_uuid|bridges|ports|interfaces|cur_cfg|next_cfg|statistics|status|ofport|ifindex|link_resets|link_state|rstp_status) *:/d' \
		-e 's/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/UUID/g'
section files; find /etc /opt /var /run \( -path '/opt/*' -o -path '/var/lib/*' -o -path '/var/log/*' -o -path '/var/cache/*' -o -path '/run/*' \) \
	-regextype posix-extended -regex '/opt/(kin|ovnkube|busybox)|/var/lib/(containerd|kubelet|etcd|cni)|/var/log/(pods|containers|kin)|/var/cache/kubectl|/run/(xtables.lock|containerd|netns|kin.*|probe.*|runc|docker)' -prune \
	-o -printf '%y %m %p\n' | sort
`

// Snapshot reads everything that is on nodes, the API server's records of nodes and namespaces, and
// the names of all objects except pods and what comes and goes with them.
func (l *Lab) Snapshot(ctx context.Context, nodes ...string) (State, error) {
	reads := []func() (State, error){
		func() (State, error) { return l.objects(ctx) },
		func() (State, error) { return l.records(ctx) },
	}
	for _, node := range nodes {
		reads = append(reads, func() (State, error) { return l.sections(ctx, node, readHost) })
	}
	all, err := gather(reads)
	for place, text := range all {
		if strings.HasSuffix(place, ": switch") {
			all[place] = rows(text)
		}
	}
	return all, err
}

// rows puts each row of a dump on a line, sorted.
func rows(dump string) string {
	var table string
	var all []string
	for block := range strings.SplitSeq(dump, "\n\n") {
		block = strings.TrimSpace(block)
		if head, rest, _ := strings.Cut(block, "\n"); strings.HasSuffix(head, " table") {
			table, block = strings.TrimSuffix(head, " table"), strings.TrimSpace(rest)
		}
		var columns []string
		for column := range strings.Lines(block) {
			name, value, _ := strings.Cut(strings.TrimSpace(column), ":")
			if value = strings.TrimSpace(value); value != "" && value != "[]" && value != "{}" && value != `""` {
				columns = append(columns, strings.TrimSpace(name)+"="+value)
			}
		}
		if len(columns) > 0 {
			all = append(all, table+": "+strings.Join(columns, " "))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// records returns the labels, annotations, taints and conditions of nodes, and the labels and
// annotations of namespaces.
func (l *Lab) records(ctx context.Context) (State, error) {
	nodes, err := l.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	namespaces, err := l.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	state := State{}
	for _, n := range nodes.Items {
		text := metadata(n.ObjectMeta)
		for _, t := range n.Spec.Taints {
			if !strings.HasPrefix(t.Key, "node.kubernetes.io/") { // set by Kubernetes itself for conditions, at any time
				text = append(text, "taint "+t.ToString())
			}
		}
		for _, c := range n.Status.Conditions {
			text = append(text, fmt.Sprintf("condition %s=%s %s", c.Type, c.Status, c.Reason))
		}
		for _, subnet := range n.Spec.PodCIDRs {
			text = append(text, "podCIDR "+subnet)
		}
		state["node "+n.Name] = strings.Join(text, "\n")
	}
	for _, n := range namespaces.Items {
		state["namespace "+n.Name] = strings.Join(metadata(n.ObjectMeta), "\n")
	}
	return state, nil
}

func metadata(m metav1.ObjectMeta) []string {
	var text []string
	for kind, set := range map[string]map[string]string{"label": m.Labels, "annotation": m.Annotations} {
		for k, v := range set {
			text = append(text, kind+" "+k+"="+v)
		}
	}
	for _, f := range m.Finalizers {
		text = append(text, "finalizer "+f)
	}
	slices.Sort(text)
	return text
}

// objects returns the names of all objects that can be listed.
func (l *Lab) objects(ctx context.Context) (State, error) {
	kinds, err := Run(ctx, append(l.Kubectl(), "api-resources", "--verbs=list", "--output=name")...)
	if err != nil {
		return nil, err
	}
	passing := []string{"pods", "events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io", "controllerrevisions.apps", "componentstatuses"}
	wanted := slices.DeleteFunc(strings.Fields(kinds), func(kind string) bool { return slices.Contains(passing, kind) })
	out, err := Run(ctx, append(l.Kubectl(), "get", strings.Join(wanted, ","), "--all-namespaces", "--no-headers",
		"--output=custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name")...)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		names = append(names, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(names)
	return State{"objects": strings.Join(names, "\n")}, nil
}

// Without returns the state without the lines for which drop returns true.
func (s State) Without(drop func(line string) bool) State {
	left := maps.Clone(s)
	for place, text := range left {
		left[place] = strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), drop), "\n")
	}
	return left
}
