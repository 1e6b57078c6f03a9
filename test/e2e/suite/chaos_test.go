package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/test/e2e/chaos"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// chaosRecovers is how long after the end of its last fault all may take to be as it is
	// to be, and chaosForgets how long what nodes keep for a while after addresses moved.
	chaosRecovers = 10 * time.Second
	chaosForgets  = time.Minute
	// chaosReady is how long Kubernetes may take a node for not ready after the API server was
	// away.
	chaosReady = time.Minute
	// chaosMoment is how long what others take away may be missing: a second is documented.
	chaosMoment = 2 * time.Second
)

// chaosTest is the chaos of one cluster.
type chaosTest struct {
	*faultTest
	// states are those of the cluster by where the addresses are.
	states map[string]lab.State
	// late reports whether the EgressIP that comes and goes is there.
	late  bool
	table strings.Builder
}

// chaos has faults of every kind happen at random while an EgressService, EgressIPs on two
// networks and external gateways carry traffic. No packet may have a wrong source, and soon
// after each fault connections carry traffic, addresses are on nodes that can have them, all
// is as planned, and the databases and hosts are as they are whenever the addresses are there.
// There are as many faults as CHAOS_FAULTS says, drawn from CHAOS_SEED or from a new seed.
func (s *suite) chaos(t *testing.T) {
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("CHAOS_SEED"), 10, 64); err == nil {
		seed = n
	}
	number := number("CHAOS_FAULTS", 0)
	steps := chaos.Plan(seed, number, chaosCluster())
	repeat := fmt.Sprintf("make chaos SEED=%d CHAOS_FAULTS=%d", seed, number)
	t.Logf("to do this again: %s", repeat)
	for _, step := range steps {
		t.Log(step)
	}
	s.smallDisk(t)
	c := &chaosTest{faultTest: s.newFaultTest(t), states: map[string]lab.State{}}
	t.Cleanup(func() { c.egress.remove(t, lateName) })
	c.sameAsEver(t, chaosForgets)
	for _, step := range steps {
		if !t.Run(step.String(), func(t *testing.T) { c.step(t, step) }) {
			t.Errorf("%s broke something; to do this again: %s", step, repeat)
			break
		}
	}
	t.Logf("after each fault, until all was in place, all connections carried traffic, and the state was as it is to be:\n%s", c.table.String())
}

// chaosCluster is what faults can happen to.
func chaosCluster() chaos.Cluster {
	c := chaos.Cluster{Nodes: nodes, Bridges: []string{"breth0", "br-int"}, Kernel: []string{"iptables", "nftables", "rules"}}
	for _, p := range processes {
		one := chaos.Process{Name: p.name, TCP: p.cut != ""}
		switch p.node {
		case lab.ControlPlane:
			if p.pattern != nodeProcess("").pattern { // it is one of those of every node
				c.Central = append(c.Central, one)
			}
		default:
			c.Local = append(c.Local, one)
		}
	}
	return c
}

// smallDisk moves the databases to a disk of their own, which can be filled, until the test
// ends.
func (s *suite) smallDisk(t *testing.T) {
	t.Helper()
	databases := func(ctx context.Context, script string) {
		for _, verb := range []string{"stop", "start"} {
			for _, daemon := range []string{"ovn-nb", "ovn-sb"} {
				if err := s.Kin.Service(ctx, verb, lab.ControlPlane, daemon); err != nil {
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
	databases(t.Context(), `cp -a /var/lib/ovn /run/chaos; mount -t tmpfs -o size=16m tmpfs /var/lib/ovn
cp -a /run/chaos/. /var/lib/ovn; rm -r /run/chaos`)
	t.Cleanup(func() {
		databases(context.WithoutCancel(t.Context()), `cp -a /var/lib/ovn /run/chaos; umount /var/lib/ovn
cp -a /run/chaos/. /var/lib/ovn; rm -r /run/chaos`)
	})
}

// step has the faults of a step happen, and fails where not all is well soon after.
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
	// Whatever happens, all is taken back.
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
	over := time.Now()
	limit := chaosRecovers + extra(step)
	if step.Change {
		if err := <-changed; err != nil {
			t.Fatal(err)
		}
		c.late = !c.late
	}
	err = lab.Until(t.Context(), limit+chaosReady, "all to be in place", func(ctx context.Context) error {
		if _, err := c.placed(ctx); err != nil {
			return err
		}
		return c.inPlace(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	placed := c.took(t, "all was in place", over, limit)
	// TCP may wait for as long again as it has been sending in vain.
	c.flowWithin(t, limit+longest(step)+chaosReady)
	flowed := c.took(t, "all connections carried traffic", over, limit+longest(step))
	where := c.sameAsEver(t, chaosForgets+chaosReady)
	settled := limit
	if where != before || c.deaths(t) != deaths { // they may have been away for a moment
		settled = chaosForgets
	}
	if where != before {
		t.Logf("now %s", where)
	}
	state := c.took(t, "the state was as it is to be", over, settled)
	fmt.Fprintf(&c.table, "%-80s %5.1f %5.1f %5.1f s\n", step, placed.Seconds(), flowed.Seconds(), state.Seconds())
	for _, f := range step.Faults {
		if f.Kind == chaos.Kill || f.Kind == chaos.Stop || f.Kind == chaos.CutOff {
			c.atWork(t, processAt(t, f))
		}
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

// took is how long something that holds now took since a time and since all nodes have been
// ready again, which may not be longer than a limit: what Kubernetes takes for not ready,
// because the API server was away and with it the word of kubelets, has no egress addresses.
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

// extra is what a step may take beyond chaosRecovers: a node that gets its bridge back is
// reachable after lostPatience.
func extra(step chaos.Step) time.Duration {
	if step.Has(chaos.Bridge) {
		return lostPatience
	}
	return 0
}

// longest is how long the longest fault of a step lasts.
func longest(step chaos.Step) (d time.Duration) {
	for _, f := range step.Faults {
		d = max(d, f.For)
	}
	return d
}

// change creates or deletes the EgressIP that comes and goes, once the API server takes it.
func (c *chaosTest) change(ctx context.Context, create bool) error {
	return lab.Until(ctx, time.Minute, "a change to be accepted", func(ctx context.Context) error {
		if !create {
			err := c.egress.client.Delete(ctx, lateName, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) { // an attempt whose answer was lost
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

// placed tells where the addresses are, and fails where they are not in force.
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

// inPlace fails where "ovnkube egress status" finds something that is not as planned.
func (c *chaosTest) inPlace(ctx context.Context) error {
	out, err := c.egressStatus(ctx)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// sameAsEver waits until the state is what it was when the addresses were where they are, or
// stands still where they never were, and returns where they are. UUIDs of rows that were made anew differ.
func (c *chaosTest) sameAsEver(t *testing.T, limit time.Duration) (where string) {
	t.Helper()
	err := lab.Until(t.Context(), limit, "the state to be as it was when the addresses were there", func(ctx context.Context) (err error) {
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
	return where
}

// comesBack waits for a node that got its power back, and for the pods on it.
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
