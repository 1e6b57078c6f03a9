package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/test/e2e/chaos"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// chaosRecovers is how long after the end of its last fault a step may take until everything is
	// as it should be, and chaosForgets how long nodes may keep what is temporary after addresses
	// moved.
	chaosRecovers = 10 * time.Second
	chaosForgets  = time.Minute
	// chaosReady is how long Kubernetes may consider a node not ready after the API server was
	// away.
	chaosReady = time.Minute
	// chaosPublishes is how long Kubernetes may take to say in EndpointSlices which pods are ready. Its
	// controller tries again after two minutes if it failed eight times, which it does as long as it has
	// not seen its own changes, e.g. after the API server was away.
	chaosPublishes = 5 * time.Minute
	// ovn-controller closes an OpenFlow connection to a switch that is stopped for switchProbe, although
	// ovn-openflow-probe-interval is longer, and tries to open it again after pauses of up to switchReconnect.
	switchProbe     = 5 * time.Second
	switchReconnect = 8 * time.Second
	// chaosShort is the seed of the short form.
	chaosShort = 101
	// chaosMoment is how long state deleted by others may be missing: a second is documented.
	chaosMoment = 2 * time.Second
)

// chaosTest is the chaos test on one cluster.
type chaosTest struct {
	*faultTest
	processes []process // that faults are injected into
	// states are the states of the cluster by where the addresses are.
	states map[string]lab.State
	// clustered reports whether the databases have members on all nodes.
	clustered bool
	// late reports whether the EgressIP that comes and goes exists.
	late  bool
	table strings.Builder
	// tables is the number of nft tables that faults have used.
	tables atomic.Int64
}

// chaos injects random faults of every kind while an EgressService, EgressIPs on two networks and
// external gateways carry traffic. No packet may have a wrong source, and soon after each fault
// connections carry traffic, addresses are on nodes that can hold them, everything is as planned,
// and the databases and hosts are in the same state as whenever the addresses were there. The
// number of faults is CHAOS_FAULTS; they are drawn from CHAOS_SEED or a new seed. With CHAOS_STEP it
// is one step of that seed that is repeated. Without any of these, the first ten of one seed are injected.
func (s *suite) chaos(t *testing.T) {
	s.smallDisk(t)
	c := &chaosTest{faultTest: s.newFaultTest(t), processes: processes, states: map[string]lab.State{}}
	c.run(t, "chaos", chaosCluster(processes))
}

// run injects the faults. The make target is printed together with the seed.
func (c *chaosTest) run(t *testing.T, target string, cluster chaos.Cluster) {
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("CHAOS_SEED"), 10, 64); err == nil {
		seed = n
	} else if os.Getenv("CHAOS_FAULTS") == "" {
		seed = chaosShort
	}
	number := number("CHAOS_FAULTS", 10)
	repeat := fmt.Sprintf("make %s SEED=%d CHAOS_FAULTS=%d", target, seed, number)
	steps := chaos.Plan(seed, number, cluster)
	if only, err := strconv.Atoi(os.Getenv("CHAOS_STEP")); err == nil && only > 0 {
		steps = slices.Repeat(chaos.Plan(seed, only, cluster)[only-1:], number)
		repeat += fmt.Sprintf(" STEP=%d", only)
	}
	t.Logf("to do this again: %s", repeat)
	for _, step := range steps {
		t.Log(step)
	}
	t.Cleanup(func() { c.egress.remove(t, lateName) })
	c.sameAsEver(t, time.Now(), chaosForgets)
	for _, step := range steps {
		if !t.Run(step.String(), func(t *testing.T) { c.step(t, step) }) {
			t.Errorf("%s broke something; to do this again: %s", step, repeat)
			break
		}
	}
	t.Logf("after each fault, until all was in place, all connections carried traffic, and the state was as it is to be:\n%s", c.table.String())
}

// chaosCluster returns what faults can be injected into.
func chaosCluster(processes []process) chaos.Cluster {
	c := chaos.Cluster{Nodes: nodes, Bridges: []string{"breth0", "br-int"}, Kernel: []string{"iptables", "nftables", "rules"}}
	for _, p := range processes {
		one := chaos.Process{Name: p.name, TCP: p.cut != ""}
		switch p.node {
		case lab.ControlPlane:
			if p.pattern != nodeProcess("").pattern { // it is one of those on every node
				c.Central = append(c.Central, one)
			}
		default:
			c.Local = append(c.Local, one)
		}
	}
	return c
}

// smallDisk moves the databases to a small disk of their own, which can be filled, until the test
// ends.
func (s *suite) smallDisk(t *testing.T) {
	t.Helper()
	databases := func(ctx context.Context, script string) {
		for _, verb := range []string{"stop", "start"} {
			for _, daemon := range []string{"ovn-nb", "ovn-sb"} {
				if err := s.Service(ctx, verb, lab.ControlPlane, daemon); err != nil {
					t.Fatal(err)
				}
			}
			if verb == "stop" {
				if _, err := s.Kin.Exec(ctx, lab.ControlPlane, "sh", "-ec", script); err != nil {
					t.Errorf("move the databases: %v", err)
				}
			}
		}
		err := lab.Until(ctx, 30*time.Second, "the databases to be at work", func(ctx context.Context) error {
			_, err := s.Kin.Exec(ctx, lab.ControlPlane, followed...)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	databases(t.Context(), `cp -a /var/lib/ovn /run/chaos; mount -t tmpfs -o size=64m tmpfs /var/lib/ovn
cp -a /run/chaos/. /var/lib/ovn; rm -r /run/chaos`)
	t.Cleanup(func() {
		databases(context.WithoutCancel(t.Context()), `cp -a /var/lib/ovn /run/chaos; umount /var/lib/ovn
cp -a /run/chaos/. /var/lib/ovn; rm -r /run/chaos`)
	})
}

// step injects the faults of a step, and fails the test if something is not right soon after.
func (c *chaosTest) step(t *testing.T, step chaos.Step) {
	before, err := c.placed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, %s", time.Now().Format(time.TimeOnly), before)
	deaths := c.deaths(t)
	changed := make(chan error, 1)
	begun := time.Now()
	undo, err := c.begin(t, step)
	if err == nil && step.Change {
		go func() { changed <- c.change(t.Context(), !c.late) }()
	}
	// All faults are reverted, whatever happens.
	for _, u := range undo {
		waited := pause(t.Context(), time.Until(begun.Add(u.after)))
		err = errors.Join(err, waited, u.do(context.WithoutCancel(t.Context())))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range step.Faults {
		if f.Kind == chaos.Power {
			c.comesBack(t, f.Node, begun.Add(f.For))
		}
	}
	// An API server that was away or killed takes seconds to start, which is not the product's time.
	if err := c.serves(t.Context()); err != nil {
		t.Fatal(err)
	}
	over, lasted := time.Now(), time.Since(begun)
	limit := chaosRecovers + extra(step)
	if step.Change {
		if err := <-changed; err != nil {
			t.Fatal(err)
		}
		c.late = !c.late
	}
	var missing error // what was missing last
	err = lab.Until(t.Context(), limit+chaosReady, "all to be in place", func(ctx context.Context) error {
		_, err := c.placed(ctx)
		if err == nil {
			err = c.inPlace(ctx)
		}
		if err != nil {
			missing = fmt.Errorf("%s after the fault: %w", time.Since(over).Round(time.Millisecond), err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	placed := c.took(t, "all was in place", over, limit)
	if missing != nil && placed > limit/2 {
		t.Logf("missing was last, %v", missing)
	}
	// TCP may back off for as long as it has already been retransmitting in vain: until all was in
	// place and the pod's next keepalive had passed.
	resumes := lasted + max(limit, 2*(placed+time.Second))
	c.flowWithin(t, resumes-time.Since(over), resumes+chaosReady)
	flowed := c.took(t, "all connections carried traffic", over, resumes)
	where, since := c.sameAsEver(t, over, chaosForgets+chaosReady+chaosPublishes)
	settled := limit
	if where != before || c.deaths(t) != deaths { // they may have moved for a moment
		settled = chaosForgets
	}
	if c.clustered && (step.Has(chaos.Kill) || step.Has(chaos.Leader)) { // a member may have to join anew
		settled = chaosForgets
	}
	if where != before {
		t.Logf("now %s", where)
	}
	state := c.took(t, "the state was as it is to be", since, settled)
	fmt.Fprintf(&c.table, "%-80s %5.1f %5.1f %5.1f s\n", step, placed.Seconds(), flowed.Seconds(), state.Seconds())
	for _, f := range step.Faults {
		if f.Kind == chaos.Kill || f.Kind == chaos.Stop || f.Kind == chaos.CutOff {
			c.atWork(t, c.processAt(f))
		}
	}
	if c.clustered {
		(&haTest{c.faultTest}).whole(t)
	}
	if step.Change {
		c.leavesAs(t, c.spare, map[bool][]netip.Addr{true: lateIPs}[c.late]...)
	}
	c.moment.from, c.moment.to = time.Time{}, time.Time{}
	if step.Has(chaos.Flush) {
		c.moment.from, c.moment.to = begun, begun.Add(time.Duration(float64(chaosMoment)*figures.Slowness()))
	}
	c.inspect(t)
}

// serves waits until the API server is ready.
func (c *chaosTest) serves(ctx context.Context) error {
	return lab.Until(ctx, chaosReady, "the API server to be ready", func(ctx context.Context) error {
		return c.Kube.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// took returns how long a condition that now holds took since the given time, and since all nodes
// have been ready again, and fails the test if it took longer than the limit: nodes that Kubernetes
// considers not ready, because kubelets could not reach the API server, get no egress addresses.
func (c *chaosTest) took(t *testing.T, what string, since time.Time, limit time.Duration) time.Duration {
	t.Helper()
	now := time.Now()
	list, err := c.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		for _, condition := range list.Items[i].Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.LastTransitionTime.After(since) {
				since = condition.LastTransitionTime.Time
			}
		}
	}
	took := now.Sub(since)
	if took > time.Duration(float64(limit)*figures.Slowness()) {
		t.Errorf("%s after %s, allowed is %s", what, took, limit)
	}
	return took
}

// extra is what a step may take beyond chaosRecovers: a node whose bridge is recreated is reachable
// after lostPatience, and ovn-controller may not notice for switchReconnect that its switch continues.
func extra(step chaos.Step) time.Duration {
	switch {
	case step.Has(chaos.Bridge):
		return lostPatience
	case slices.ContainsFunc(step.Faults, func(f chaos.Fault) bool {
		return f.Kind == chaos.Stop && f.Target == "switch" && f.For >= switchProbe
	}):
		return switchReconnect
	}
	return 0
}

// change creates or deletes the EgressIP that comes and goes, once the API server accepts it.
func (c *chaosTest) change(ctx context.Context, create bool) error {
	return lab.Until(ctx, time.Minute, "a change to be accepted", func(ctx context.Context) error {
		if !create {
			err := c.egress.client.Delete(ctx, lateName, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) { // an earlier attempt whose response was lost
				return nil
			}
			return err
		}
		_, err := c.egress.client.Create(ctx, newEgressIP(lateName, lateIPs, held), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// placed returns where the addresses are, and an error if they are not programmed.
func (c *chaosTest) placed(ctx context.Context) (string, error) {
	list, err := c.egress.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var where []string
	for i := range list.Items {
		ip := &list.Items[i]
		if err := has(ip, v1.ConditionProgrammed, metav1.ConditionTrue); err != nil {
			return "", fmt.Errorf("EgressIP %s: %w", ip.Name, err)
		}
		if len(ip.Status.Items) != len(ip.Spec.EgressIPs) {
			return "", fmt.Errorf("EgressIP %s is at %v", ip.Name, ip.Status.Items)
		}
		for _, item := range ip.Status.Items {
			where = append(where, fmt.Sprintf("%s at %s", item.EgressIP, item.Node))
		}
	}
	host, err := c.service.hostNow(ctx)
	if err != nil {
		return "", err
	}
	slices.Sort(where)
	return strings.Join(append(where, "EgressService at "+host), ", "), nil
}

// inPlace returns an error if "ovnkube egress status" finds something that is not as planned.
func (c *chaosTest) inPlace(ctx context.Context) error {
	out, err := c.egressStatus(ctx)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// sameAsEver waits until the state is what it was when the addresses were last on the same nodes,
// or until it is stable if they never were, and returns where they are. UUIDs of recreated rows are
// ignored. It also returns when Kubernetes published which pods are ready, if that was after over.
func (c *chaosTest) sameAsEver(t *testing.T, over time.Time, limit time.Duration) (where string, since time.Time) {
	t.Helper()
	since = over
	err := lab.Until(t.Context(), limit, "the state to be as it was when the addresses were there", func(ctx context.Context) (err error) {
		if err := c.published(ctx); err != nil {
			if errors.Is(err, errUnpublished) {
				since = time.Now()
			}
			return err
		}
		if where, err = c.placed(ctx); err != nil {
			return err
		}
		if c.states[where] == nil {
			state := c.steadyState(t).Anonymous()
			now, err := c.placed(ctx)
			if err != nil {
				return err
			}
			if now != where {
				return fmt.Errorf("the addresses do not stay: %s, then %s", where, now)
			}
			if err := c.moved(ctx, state); err != nil {
				return err
			}
			c.states[where] = state
			return nil
		}
		now, err := c.State(ctx, nodes...)
		if err != nil {
			return err
		}
		if diff := c.states[where].Diff(now.Anonymous()); diff != "" {
			return fmt.Errorf("it differs, with %s:\n%s", where, diff)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return where, since
}

// errUnpublished is the error of published.
var errUnpublished = errors.New("EndpointSlices do not say which pods are ready")

// published returns an error while EndpointSlices do not say of the pods they have whether these are ready.
func (c *chaosTest) published(ctx context.Context) error {
	pods, err := c.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := map[types.UID]bool{}
	for i := range pods.Items {
		p := &pods.Items[i]
		ready[p.UID] = slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	}
	all, err := c.Kube.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		for _, e := range all.Items[i].Endpoints {
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" && (e.Conditions.Ready == nil || *e.Conditions.Ready) != ready[e.TargetRef.UID] {
				return fmt.Errorf("%w: EndpointSlice %s has pod %s, whose readiness is %t", errUnpublished, all.Items[i].Name, e.TargetRef.Name, ready[e.TargetRef.UID])
			}
		}
	}
	return nil
}

// moved returns an error while a node has rules from a move of the EgressService: its former host and the
// present one keep them for half a minute.
func (c *chaosTest) moved(ctx context.Context, state lab.State) error {
	host, err := c.service.hostNow(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		for _, place := range []string{": iptables", ": ip6tables"} {
			for _, rule := range moveRule.FindAllStringSubmatch(state[node+place], -1) {
				if node != host || rule[1] == "EGRESS-SVC-HAND-ON" {
					return fmt.Errorf("the host is %s, and %s has %s", host, node, rule[0])
				}
			}
		}
	}
	return nil
}

// moveRule matches a rule for packets that come to the address of an EgressService and belong to no known connection. The
// first submatch is its chain: one for packets that are handed on, or one in which the host drops them.
var moveRule = regexp.MustCompile(`(?m)^-A OVN-KUBE-(EGRESS-SVC-HAND-ON|STRAY|STRAY-INPUT) -d .*$`)

// comesBack waits for a node whose power is back, and for the pods on it.
func (c *chaosTest) comesBack(t *testing.T, node string, on time.Time) {
	t.Helper()
	c.boots(t, node, on)
	c.listenAgain(t, node)
	for _, g := range c.groups {
		if g.pod.Node == node {
			c.restarted(t, g.pod, on)
		}
	}
}
