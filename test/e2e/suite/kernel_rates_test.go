package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	ratesName = "rates"
	ratePort  = 20894
	rateTime  = 3 * time.Second
	// ratePairs is how many times a path and the plain one are measured, alternately.
	ratePairs = 1
	// slowestPath is the least part of the plain path's packets that another path may carry. Other processes
	// disturb this measurement; a packet that goes through a process instead of the datapath costs a
	// hundred times as much.
	slowestPath = 0.1
	// onOwnNode and onOtherNode are how many times as many lookups as on the plain path a packet may cost.
	// Another node has to look it up, too.
	onOwnNode, onOtherNode = 1.15, 2
)

var (
	rateIPs     = addresses("172.18.0.239", "fc00:f853:ccd:e793::239")
	rateIngress = addresses("5.5.5.65", "5555::41")
)

// rates measures how many packets each egress path carries, as a part of what the plain path carries at
// the same time.
func (k *kernelTest) rates(t *testing.T) {
	e := k.egressIPOf(t)
	hosted := func(t *testing.T, holder string, ips []netip.Addr) lab.Pod {
		e.assignable(t, holder)
		e.create(t, ratesName, ips, held)
		pod := k.flooder(t, chosen(ratesName))
		e.programmed(t, ratesName)
		return pod
	}
	outside := target{lab.Outside, lab.OutsideAddresses}
	for _, path := range []struct {
		name  string
		most  float64 // lookups, as a multiple of the plain path's
		to    target
		serve func(t *testing.T) (lab.Pod, []netip.Addr)
	}{
		{"EgressIP held by the pod's node", onOwnNode, outside, func(t *testing.T) (lab.Pod, []netip.Addr) { return hosted(t, nodes[1], rateIPs), rateIPs }},
		{"EgressIP held by another node", onOtherNode, outside, func(t *testing.T) (lab.Pod, []netip.Addr) { return hosted(t, lab.ControlPlane, rateIPs), rateIPs }},
		{"EgressIP of a second network held by the pod's node", onOwnNode, target{shore, shoreIPs}, func(t *testing.T) (lab.Pod, []netip.Addr) {
			k.addShore(t)
			return hosted(t, nodes[1], storageIPs), storageIPs
		}},
		{"EgressService on its host", onOwnNode, outside, func(t *testing.T) (lab.Pod, []netip.Addr) {
			s := k.serve(t, ratesName, rateIngress)
			s.announce(t)
			pod := k.flooder(t, s.labels())
			s.programmed(t, "")
			return pod, rateIngress
		}},
		{"nothing", onOwnNode, outside, func(t *testing.T) (lab.Pod, []netip.Addr) {
			own, err := k.NodeAddresses(t.Context(), nodes[1])
			if err != nil {
				t.Fatal(err)
			}
			return k.flooder(t, nil), own
		}},
	} {
		t.Run(path.name, func(t *testing.T) {
			pod, ips := path.serve(t)
			for i, to := range path.to.addrs {
				k.leaves(t, pod.Name, to, ips[i])
				k.compare(t, path.name, path.most, pod.Name, path.to.machine, to)
			}
			e.remove(t, ratesName)
			e.assignable(t)
		})
	}
}

// target is a machine outside, with its addresses.
type target struct {
	machine string
	addrs   []netip.Addr
}

// flooder runs a server pod on the worker until the test ends.
func (k *kernelTest) flooder(t *testing.T, labels map[string]string) lab.Pod {
	t.Helper()
	pod, err := k.RunServer(t.Context(), ratesName, nodes[1], labels)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.DeletePod(context.WithoutCancel(t.Context()), ratesName); err != nil {
			t.Error(err)
		}
	})
	return pod
}

// compare measures how many packets a pod gets to an address, and what each costs the datapaths of the nodes,
// and does the same in between for a pod that no feature serves.
func (k *kernelTest) compare(t *testing.T, what string, most float64, pod, machine string, to netip.Addr) {
	t.Helper()
	const plain = "a"
	outside, err := pick(lab.OutsideAddresses, to.Is4())
	if err != nil {
		t.Fatal(err)
	}
	var paths, plains []flooded
	plains = append(plains, k.flood(t, plain, lab.Outside, outside))
	for range ratePairs {
		paths = append(paths, k.flood(t, pod, machine, to))
		plains = append(plains, k.flood(t, plain, lab.Outside, outside))
	}
	rate := func(f flooded) float64 { return float64(f.arrived) }
	cost := func(f flooded) float64 { return float64(f.lookups) / float64(f.arrived) }
	ratio, lookups, plainLookups := middle(paths, rate)/middle(plains, rate), middle(paths, cost), middle(plains, cost)
	t.Logf("%s, to %s: %.2f of the plain path's packets; %.1f lookups for each, plain %.1f; in %s: %v, plain %v",
		what, to, ratio, lookups, plainLookups, rateTime, paths, plains)
	if ratio < slowestPath {
		t.Errorf("%s, to %s: %.2f of the plain path's packets, want at least %.2f", what, to, ratio, slowestPath)
	}
	// On a slow machine few packets are sent in that time, and those of others are a large part.
	if figures.Slowness() == 1 && lookups > most*plainLookups {
		t.Errorf("%s, to %s: %.1f lookups for each packet, want at most %.2f times the plain path's %.1f", what, to, lookups, most, plainLookups)
	}
}

// flooded is what a pod could send in a while.
type flooded struct {
	arrived int
	// lookups is how often the datapaths of the nodes have looked for a flow meanwhile: once for each
	// pass of a packet. It depends on the path only, not on how busy the machine is.
	lookups int
}

// middle returns the median of a value of each.
func middle(all []flooded, value func(flooded) float64) float64 {
	var values []float64
	for _, f := range all {
		values = append(values, value(f))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// flood has a pod send as fast as it can.
func (k *kernelTest) flood(t *testing.T, pod, machine string, to netip.Addr) flooded {
	t.Helper()
	rules := fmt.Sprintf("table inet e2e { chain input { type filter hook input priority 0; udp dport %d counter drop; }; }", ratePort)
	if _, err := k.Kin.Exec(t.Context(), machine, "nft", rules); err != nil {
		t.Fatal(err)
	}
	send := func(ctx context.Context, length time.Duration) error { // by the pod itself, with its share of the processors
		_, err := k.Exec(ctx, pod, "/probe", "flood", "-to", netip.AddrPortFrom(to, ratePort).String(), "-for", length.String())
		return err
	}
	// The first packets wait for ovs-vswitchd, which a flood may leave no time to add flows.
	errFirst := lab.Until(t.Context(), egressPatience, "the first packets to arrive", func(ctx context.Context) error {
		if err := send(ctx, time.Millisecond); err != nil {
			return err
		}
		n, err := k.dropped(ctx, machine)
		if err == nil && n == 0 {
			err = errors.New("none did")
		}
		return err
	})
	first, err := k.dropped(t.Context(), machine)
	before, errBefore := k.lookups(t.Context())
	errFlood := send(t.Context(), rateTime)
	after, errAfter := k.lookups(t.Context())
	n, errLast := k.dropped(t.Context(), machine)
	_, errDelete := k.Kin.Exec(context.WithoutCancel(t.Context()), machine, "nft", "delete table inet e2e")
	if err := errors.Join(errFirst, err, errBefore, errFlood, errAfter, errLast, errDelete); err != nil {
		t.Fatal(err)
	}
	return flooded{n - first, after - before}
}

// lookups returns how often the datapaths of the nodes have looked for a flow.
func (k *kernelTest) lookups(ctx context.Context) (sum int, err error) {
	for _, node := range nodes {
		out, err := k.Kin.Exec(ctx, node, "ovs-appctl", "dpctl/show")
		if err != nil {
			return 0, err
		}
		found := false
		for line := range strings.Lines(out) { // "  lookups: hit:1 missed:2 lost:0"
			if words := strings.Fields(line); len(words) > 2 && words[0] == "lookups:" {
				for _, w := range words[1:3] {
					_, text, _ := strings.Cut(w, ":")
					n, err := strconv.Atoi(text)
					if err != nil {
						return 0, fmt.Errorf("lookups of %s: %w", node, err)
					}
					sum += n
				}
				found = true
			}
		}
		if !found {
			return 0, fmt.Errorf("no lookups: %s", out)
		}
	}
	return sum, nil
}

// dropped returns how many packets the nft table of this test has dropped on a machine.
func (k *kernelTest) dropped(ctx context.Context, machine string) (int, error) {
	out, err := k.Kin.Exec(ctx, machine, "nft", "list", "table", "inet", "e2e")
	if err != nil {
		return 0, err
	}
	words := strings.Fields(out)
	i := slices.Index(words, "packets")
	if i < 0 {
		return 0, fmt.Errorf("no counter: %s", out)
	}
	return strconv.Atoi(words[i+1])
}
