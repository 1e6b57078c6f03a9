package walkthrough

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// policies is the output of lr-policy-list.
type policies struct {
	text string
	rows []policy
}

type policy struct {
	priority, match, action string
}

// A row has the priority, the match, the action and, for a reroute, the next hop, separated by
// several spaces.
var columns = regexp.MustCompile(`\s{2,}`)

func parsePolicies(text string) policies {
	p := policies{text: text}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		priority, rest, found := strings.Cut(line, " ")
		if !found || strings.Trim(priority, "0123456789") != "" {
			continue // the heading
		}
		fields := columns.Split(strings.TrimSpace(rest), -1)
		p.rows = append(p.rows, policy{priority, fields[0], strings.Join(fields[1:], " ")})
	}
	return p
}

func listPolicies() []string {
	return []string{"ovn-nbctl", "lr-policy-list", topology.ClusterRouter}
}

func (w *walk) policies(ctx context.Context) (policies, error) {
	text, err := w.lab.Kin.Exec(ctx, lab.ControlPlane, listPolicies()...)
	return parsePolicies(text), err
}

func (w *walk) showPolicies(ctx context.Context) error {
	_, err := w.on(ctx, lab.ControlPlane, listPolicies()...)
	return err
}

// of returns the match and action of the rows with a priority, sorted.
func (p policies) of(priority int) []string {
	var found []string
	for _, r := range p.rows {
		if r.priority == fmt.Sprint(priority) {
			found = append(found, r.match+" "+r.action)
		}
	}
	slices.Sort(found)
	return found
}

func match(a netip.Addr) string { return topology.FamilyOf(a).Match() }

// checkBare checks the policies of a cluster in which no egress features are in use.
func (p policies) checkBare(nodes map[string]topology.Node) error {
	var want []string
	for _, n := range nodes {
		for _, a := range n.Primary {
			addr := a.Addr()
			want = append(want, fmt.Sprintf("inport == %q && %s.dst == %s /* %s */ reroute %s",
				topology.RouterToSwitch(n.Name), match(addr), addr, n.Name, management(n, addr.Is4())))
		}
	}
	if err := same("1004 policies", p.of(topology.PriorityNodeLocal), want); err != nil {
		return err
	}
	for _, family := range []string{"ip4", "ip6"} {
		allowed := slices.DeleteFunc(p.of(topology.PriorityNoReroute), func(s string) bool {
			return !strings.Contains(s, family+".dst") || !strings.Contains(s, " allow")
		})
		if len(allowed) != 3 {
			return fmt.Errorf("want 3 policies 102 of %s (to pods, to the join network, to nodes), have %q", family, allowed)
		}
	}
	return same("101 policies", p.of(topology.PriorityEgressService), nil)
}

// checkReroutes checks the policies of the EgressService.
func (p policies) checkReroutes(pods []lab.Pod, host topology.Node) error {
	var want []string
	for _, pod := range pods {
		for _, a := range pod.Addresses {
			want = append(want, fmt.Sprintf("%s.src == %s reroute %s", match(a), a, management(host, a.Is4())))
		}
	}
	return same("101 policies", p.of(topology.PriorityEgressService), want)
}

// management returns the address of a node's management port: the second of its subnet.
func management(n topology.Node, is4 bool) netip.Addr {
	for _, s := range n.Subnets {
		if s.Addr().Is4() == is4 {
			return s.Masked().Addr().Next().Next()
		}
	}
	return netip.Addr{}
}

// same compares lists regardless of order.
func same(what string, have, want []string) error {
	have, want = slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(want))
	if !slices.Equal(have, want) {
		return fmt.Errorf("%s: want\n  %s\nhave\n  %s", what, strings.Join(want, "\n  "), strings.Join(have, "\n  "))
	}
	return nil
}

// translation checks the SNAT rules on the egress host, one for each endpoint, checks that no other
// running node has any, and shows those of the host.
func (w *walk) translation(ctx context.Context, is4 bool, pods []lab.Pod) error {
	save, to := "iptables-save", w.ingress[0]
	if !is4 {
		save, to = "ip6tables-save", w.ingress[1]
	}
	command := []string{"sh", "-c", save + " -t nat | grep EGRESS"}
	fixed := []string{"-A POSTROUTING -j OVN-KUBE-EGRESS-IP-MULTI-NIC", "-A POSTROUTING -j OVN-KUBE-EGRESS-SVC"}
	rules := []string{}
	if len(pods) > 0 { // traffic from pods to nodes is not translated
		rules = append(rules, "-A OVN-KUBE-EGRESS-SVC -m mark --mark 0x3f0 -m comment --comment DoNotSNAT -j RETURN")
	}
	for _, pod := range pods {
		a := pod.Address(is4)
		rules = append(rules, fmt.Sprintf("-A OVN-KUBE-EGRESS-SVC -s %s -m comment --comment \"%s/%s\" -j SNAT --to-source %s",
			netip.PrefixFrom(a, a.BitLen()), lab.Namespace, service, to))
	}
	alive, err := w.alive(ctx)
	if err != nil {
		return err
	}
	for _, node := range alive {
		want := fixed
		if node == w.host {
			want = slices.Concat(fixed, rules)
		}
		err := lab.Until(ctx, settle, "the SNAT rules on "+node, func(ctx context.Context) error {
			out, err := w.lab.Kin.Exec(ctx, node, command...)
			if err != nil {
				return err
			}
			var have []string
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "-A ") {
					have = append(have, strings.TrimSpace(line))
				}
			}
			return same("rules of "+save, have, want)
		})
		if err != nil {
			return err
		}
	}
	if _, err := w.on(ctx, w.host, command...); err != nil {
		return err
	}
	w.ok("%d SNAT rules on %s, none on other nodes", len(pods), w.host)
	return nil
}

// alive returns the nodes that were not stopped, sorted.
func (w *walk) alive(ctx context.Context) ([]string, error) {
	var alive []string
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if _, err := w.lab.Kin.Exec(ctx, name, "true"); err == nil {
			alive = append(alive, name)
		}
	}
	if !slices.Contains(alive, w.host) && w.host != "" {
		return nil, fmt.Errorf("%s is in charge and does not answer", w.host)
	}
	return alive, nil
}

// labelled checks that exactly the given node has the label; empty means no node.
func (w *walk) labelled(ctx context.Context, node string) error {
	selector := fmt.Sprintf("egress-service.k8s.ovn.org/%s-%s=", lab.Namespace, service)
	want := []string{}
	if node != "" {
		want = []string{node}
	}
	err := lab.Until(ctx, settle, "the node label", func(ctx context.Context) error {
		list, err := w.lab.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		var have []string
		for i := range list.Items {
			have = append(have, list.Items[i].Name)
		}
		return same("nodes with the label", have, want)
	})
	if err != nil {
		return err
	}
	if _, err := w.kubectl(ctx, "get", "nodes", "-l", selector); err != nil {
		return err
	}
	if node == "" {
		w.ok("no node has the label")
	} else {
		w.ok("only %s has the label", node)
	}
	return nil
}

// seenFromNodes checks that the traffic of each endpoint leaves with the address of its node.
func (w *walk) seenFromNodes(ctx context.Context) error {
	return w.seen(ctx, func(p lab.Pod) ([]netip.Addr, error) { return w.lab.NodeAddresses(ctx, p.Node) })
}

// seen has every endpoint call the outside host and checks the source address that the host saw.
func (w *walk) seen(ctx context.Context, wanted func(lab.Pod) ([]netip.Addr, error)) error {
	for _, pod := range w.pods {
		want, err := wanted(pod)
		if err != nil {
			return err
		}
		for i, outside := range lab.OutsideAddresses {
			err := lab.Until(ctx, settle, fmt.Sprintf("%s to reach %s", pod.Name, outside), func(ctx context.Context) error {
				have, err := w.lab.SeenFromPod(ctx, pod.Name, outside)
				if err != nil {
					return err
				}
				if have != want[i] {
					return fmt.Errorf("the outside host saw %s, want %s", have, want[i])
				}
				w.shown("kubectl exec "+pod.Name+" -- /probe get "+lab.URL(outside, "/clientip"), have.String())
				return nil
			})
			if err != nil {
				return err
			}
			if err := w.stays(ctx, pod, outside, want[i]); err != nil {
				return err
			}
		}
	}
	w.ok("that is the source address the outside host must see")
	return nil
}

// stays checks that the source address is not right by chance: further connections, each from
// another port, have it too.
func (w *walk) stays(ctx context.Context, pod lab.Pod, outside, want netip.Addr) error {
	for range 5 {
		have, err := w.lab.SeenFromPod(ctx, pod.Name, outside)
		if err != nil {
			return err
		}
		if have != want {
			return fmt.Errorf("%s was seen as %s, and in a later connection as %s", pod.Name, want, have)
		}
	}
	return nil
}

// answered has the outside host call the ingress addresses, and checks that an endpoint answers.
func (w *walk) answered(ctx context.Context) error {
	for _, a := range w.ingress {
		err := lab.Until(ctx, settle, fmt.Sprintf("the outside host to reach %s", a), func(ctx context.Context) error {
			name, err := w.lab.Call(ctx, lab.Outside, false, "get", lab.URL(a, "/hostname"))
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(w.pods, func(p lab.Pod) bool { return p.Name == name }) {
				return fmt.Errorf("%q answered, which is no endpoint", name)
			}
			w.shown("kin exec "+lab.Outside+" -- probe get "+lab.URL(a, "/hostname"), name)
			return nil
		})
		if err != nil {
			return err
		}
	}
	w.ok("an endpoint answers at the same addresses")
	return nil
}
