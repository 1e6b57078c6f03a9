package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/chaos"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	blindName = "blind-leaders"
	// blindLeads is how long a master may take to become or remain leader: a lease lasts 30
	// seconds.
	blindLeads = time.Minute
)

var (
	blindLeaderIngress = addresses("5.5.5.19", "5555::13")
	blindIPs           = addresses("172.18.0.249", "fc00:f853:ccd:e793::249")
)

// blindLeaders has a master on each node lead in turn and cuts this node off in each way, while
// nothing is wrong with the other nodes: no address on another node moves, and no packet leaves
// with another source.
func (s *suite) blindLeaders(t *testing.T) {
	e := s.serve(t, blindName, blindLeaderIngress, func(eg *v1.EgressService) { eg.Spec.OnUnavailable = v1.UnavailableDrop })
	e.announce(t)
	e.programmed(t, "")
	l := &leakTest{served: e, capture: newCapture(t, s, blindPort+1, blindPort+1, blindLeaderIngress)}
	for _, node := range nodes {
		sender := lab.Sender{Name: l.podOn(node), Node: node, Labels: e.labels(), To: lab.OutsideAddresses, Port: blindPort + 1}
		if err := s.StartSender(t.Context(), sender); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range nodes {
		l.runs(t, node, "")
	}
	ips := s.egressIPOf(t)
	t.Cleanup(func() { ips.assignable(t); s.forgotten(t, blindIPs) })
	ips.assignable(t, nodes[1:]...)
	ips.create(t, blindName, blindIPs, held)
	for _, leader := range []string{lab.ControlPlane, "ovn-worker", "ovn-worker2"} {
		t.Run(leader, func(t *testing.T) {
			if leader != lab.ControlPlane {
				s.leadFrom(t, leader)
			}
			s.leads(t, leader, time.Now())
			s.keepAway(t, e, ips, leader)
			before := fmt.Sprintf("EgressService at %s, EgressIP at %v", e.programmed(t, leader), ips.programmed(t, blindName))
			for _, way := range s.blindWays() {
				t.Run(way.name, func(t *testing.T) {
					undo, err := way.begin(t, leader)
					if err == nil {
						err = pause(t.Context(), blindFor)
					}
					if undo != nil {
						if failed := undo(context.WithoutCancel(t.Context())); failed != nil {
							t.Error(failed)
						}
					}
					if err != nil {
						t.Fatal(err)
					}
					// The master writes what it has decided meanwhile once it leads again, or
					// never.
					s.leads(t, leader, time.Now())
					if err := pause(t.Context(), blindFor); err != nil {
						t.Fatal(err)
					}
					if after := fmt.Sprintf("EgressService at %s, EgressIP at %v", e.programmed(t, ""), ips.programmed(t, blindName)); after != before {
						t.Errorf("before: %s\nafter: %s", before, after)
					}
					e.steered(t, len(nodes))
				})
			}
		})
	}
	t.Logf("%d packets with the right source", l.capture.inspect(t))
}

// blindWay is a way to cut a node off; begin returns a function that undoes it.
type blindWay struct {
	name  string
	begin func(t *testing.T, node string) (func(context.Context) error, error)
}

func (s *suite) blindWays() []blindWay {
	c := &chaosTest{faultTest: &faultTest{suite: s}}
	fault := func(kind chaos.Kind, target string) func(*testing.T, string) (func(context.Context) error, error) {
		return func(t *testing.T, node string) (func(context.Context) error, error) {
			return c.beginOne(t, chaos.Fault{Kind: kind, Node: node, Target: target})
		}
	}
	return []blindWay{
		{"switch stopped", fault(chaos.Stop, "switch")},
		{"tunnel dropped", func(t *testing.T, node string) (func(context.Context) error, error) {
			return c.drops(node, uplinkDrops("udp dport 6081"))(t.Context())
		}},
		{"uplink down", fault(chaos.LinkDown, "")},
		{"processors starved", s.starve},
	}
}

// starve limits everything on a node to a fiftieth of one processor.
func (s *suite) starve(_ *testing.T, node string) (func(context.Context) error, error) {
	for _, limit := range []struct{ file, starved, free string }{
		{"/sys/fs/cgroup/cpu/kin-" + s.Kin.Name + "-*/" + node + "/cpu.cfs_quota_us", "2000", "-1"},   // cgroup version 1
		{"/sys/fs/cgroup/kin-" + s.Kin.Name + "-*/" + node + "/cpu.max", "2000 100000", "max 100000"}, // cgroup version 2
	} {
		files, err := filepath.Glob(limit.file)
		if err != nil || len(files) == 0 {
			continue
		}
		stat := filepath.Join(filepath.Dir(files[0]), "cpu.stat")
		before, err := os.ReadFile(stat)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error {
			if err := os.WriteFile(files[0], []byte(limit.free), 0); err != nil {
				return err
			}
			after, err := os.ReadFile(stat)
			if err != nil {
				return err
			}
			// There were 40 periods of 100 ms; without throttling, there was no fault.
			if a, b := throttled(string(before)), throttled(string(after)); b-a < 20 {
				return fmt.Errorf("%s was kept from its processors %d times", node, b-a)
			}
			return nil
		}, os.WriteFile(files[0], []byte(limit.starved), 0)
	}
	return nil, fmt.Errorf("no control group limits the processors of %s", node)
}

// throttled returns the number of throttled periods in a cpu.stat file.
func throttled(stat string) int {
	for line := range strings.Lines(stat) {
		if text, ok := strings.CutPrefix(line, "nr_throttled "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(text))
			return n
		}
	}
	return 0
}

// keepAway moves all addresses to a worker other than the leader's, which could hold them.
func (s *suite) keepAway(t *testing.T, e *served, ips *egressIPTest, leader string) {
	t.Helper()
	if leader == lab.ControlPlane {
		return
	}
	other := nodes[1]
	if other == leader {
		other = nodes[2]
	}
	ips.assignable(t, other)
	s.cordon(t, leader, true)
	err := lab.Until(t.Context(), egressPatience, "all to be on "+other, func(ctx context.Context) error {
		host, err := e.hostNow(ctx)
		if err != nil {
			return err
		}
		if host != other {
			return fmt.Errorf("the host is %s", host)
		}
		ip, err := ips.client.Get(ctx, blindName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, item := range ip.Status.Items {
			if item.Node != other {
				return fmt.Errorf("%s is at %s", item.EgressIP, item.Node)
			}
		}
		return nil
	})
	s.cordon(t, leader, false)
	if err != nil {
		t.Fatal(err)
	}
	ips.assignable(t, nodes[1:]...)
}

// leadFrom runs a master on a worker instead of the one on the control plane until the test ends.
func (s *suite) leadFrom(t *testing.T, node string) {
	t.Helper()
	ctx := t.Context()
	const config = "/etc/kubernetes/ovnkube-master.conf"
	account, err := s.Kin.Exec(ctx, lab.ControlPlane, "cat", config)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := s.pid(ctx, processOf(t, "ovnkube master"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.Kin.Exec(ctx, lab.ControlPlane, "sh", "-c", "tr '\\0' '\\n' <"+"/proc/"+pid+"/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(text)
	if i := slices.Index(args, lab.ControlPlane); i >= 0 {
		args[i] = node
	}
	args = slices.DeleteFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "--metrics-bind-address=") || strings.HasPrefix(a, "--encap-ip=")
	})
	if _, err := s.Kin.Exec(ctx, node, "sh", "-ec", "umask 077; printf %s \"$1\" >"+config, "sh", account); err != nil {
		t.Fatal(err)
	}
	if err := s.Service(ctx, "stop", lab.ControlPlane, "ovnkube-master"); err != nil {
		t.Fatal(err)
	}
	started, err := s.Kin.Exec(ctx, node, append([]string{"sh", "-c", `setsid sh -c 'until "$@"; do sleep 1; done' sh "$@" >/var/log/ovnkube-master.log 2>&1 </dev/null & echo $!`, "sh"}, args...)...)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if t.Failed() {
			log, _ := s.Kin.Exec(ctx, node, "tail", "-n", "60", "/var/log/ovnkube-master.log")
			t.Logf("the log of the master on %s:\n%s", node, log)
		}
		if _, err := s.Kin.Exec(ctx, node, "sh", "-c", "kill -- -"+strings.TrimSpace(started)+"; rm -f "+config); err != nil {
			t.Error(err)
		}
		if err := s.Service(ctx, "start", lab.ControlPlane, "ovnkube-master"); err != nil {
			t.Error(err)
		}
		s.leads(t, lab.ControlPlane, time.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// leads waits until the master on a node holds the lease, renewed after the given time.
func (s *suite) leads(t *testing.T, node string, since time.Time) {
	t.Helper()
	err := lab.Until(context.WithoutCancel(t.Context()), blindLeads, "the master on "+node+" to lead", func(ctx context.Context) error {
		lease, err := s.Kube.CoordinationV1().Leases(ovnkubeAccounts).Get(ctx, "ovn-kubernetes-master", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if holder := lease.Spec.HolderIdentity; holder == nil || *holder != node && !strings.HasPrefix(*holder, node+"_") || !lease.Spec.RenewTime.After(since) {
			return fmt.Errorf("the lease is %+v", lease.Spec)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
