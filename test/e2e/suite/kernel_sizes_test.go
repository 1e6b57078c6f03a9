package suite

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	sizesName = "sizes"
	// sizesEach is how many pods an EgressIP has, and sizesAtOnce how many start at a time.
	sizesEach, sizesAtOnce = 10, 5
	// sizesEvery is how often each pod sends to each address, over a new connection.
	sizesEvery = 500 * time.Millisecond
)

// sizes fills a node with pods of EgressIPs that it holds, all of which send, and shows what its switch
// and its kernel have of them. KERNEL_PODS is the number of pods, by default none.
func (k *kernelTest) sizes(t *testing.T) {
	node := nodes[1]
	pods := number("KERNEL_PODS", 0)
	k.shows(t, node, "without pods")
	var names []string
	for i := range pods {
		names = append(names, fmt.Sprintf("%s-%d", sizesName, i))
	}
	e := k.egressIPOf(t)
	t.Cleanup(func() { e.deletePods(t, names) })
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(sizesAtOnce)
	for i, name := range names {
		group.Go(func() error {
			_, err := k.RunPulseEvery(ctx, sizesEvery, name, node, chosen(sizesOf(i)), lab.OutsideAddresses)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	k.shows(t, node, fmt.Sprintf("with %d pods", pods))
	e.assignable(t, node)
	for i := 0; i < pods; i += sizesEach {
		e.create(t, sizesOf(i), sizesIPs(i))
	}
	for i := 0; i < pods; i += sizesEach {
		e.programmed(t, sizesOf(i))
		for _, is4 := range []bool{true, false} {
			to, err := pick(lab.OutsideAddresses, is4)
			if err != nil {
				t.Fatal(err)
			}
			k.leaves(t, names[i], to, ofFamily(sizesIPs(i), is4)...)
		}
	}
	k.shows(t, node, fmt.Sprintf("with %d pods of EgressIPs", pods))
	e.assignable(t)
}

// sizesOf returns the name of a pod's EgressIP, and sizesIPs its addresses.
func sizesOf(pod int) string { return sizesName + "-" + strconv.Itoa(pod/sizesEach) }

func sizesIPs(pod int) []netip.Addr {
	i := pod/sizesEach + 1
	return []netip.Addr{netip.AddrFrom4([4]byte{172, 18, 2, byte(i)}), netip.MustParseAddr(fmt.Sprintf("fc00:f853:ccd:e793::2:%x", i))}
}

// shows logs how many flows and connections a node has.
func (k *kernelTest) shows(t *testing.T, node, when string) {
	t.Helper()
	out, err := k.Kin.Exec(t.Context(), node, "sh", "-ec", `for bridge in br-int breth0; do
	echo $bridge: $(ovs-ofctl dump-aggregate $bridge | sed "s/.*flow_count=//") flows,
done
echo datapath: $(ovs-appctl dpctl/dump-flows | wc -l) flows, $(ovs-appctl dpctl/dump-conntrack | wc -l) connections,
echo iptables: $(iptables-save | grep -c ^-A) and $(ip6tables-save | grep -c ^-A) rules`)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s %s: %s", node, when, strings.Join(strings.Fields(out), " "))
}
