package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAddCheckDel(t *testing.T) {
	l := newLab(t)
	l.pod("web", "u1", podNetwork)
	l.sandbox("sb1")
	add := l.request(cni.CommandAdd, "sb1", "web", "u1")
	result := l.mustHandle(add)
	result.Interfaces[0].Mac = "xx" // the kernel's choice
	result.Interfaces[1].Sandbox = "/run/netns/sb1"
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "add-result", string(text)+"\n")
	golden.Check(t, "pod-interface", squeeze(l.ns.Run("ip", "-n", "sb1", "-br", "addr", "show", "dev", "eth0", "scope", "global")+"\n"+
		l.ns.Run("ip", "-n", "sb1", "route")+"\n"+l.ns.Run("ip", "-n", "sb1", "-6", "route", "show", "default")))
	golden.Check(t, "port-ids", strings.NewReplacer(", ", "\n", add.Netns, "/run/netns/sb1").Replace(l.vs.Run("ovs-vsctl", "get", "interface", l.ports(), "external_ids"))+"\n")
	if mtu := l.ns.Run("ip", "netns", "exec", "sb1", "cat", "/proc/sys/net/ipv6/conf/eth0/mtu"); mtu != "1400" {
		t.Errorf("MTU is %s", mtu)
	}

	check := withPrevious(t, l.request(cni.CommandCheck, "sb1", "web", "u1"), l.mustHandle(add)) // ADD again changes nothing
	l.mustHandle(check)
	l.ns.Run("ip", "-n", "sb1", "addr", "del", "10.244.1.5/24", "dev", "eth0")
	if _, err := l.handle(check); err == nil || !strings.Contains(err.Error(), "lacks address 10.244.1.5/24") {
		t.Errorf("CHECK without the address: %v", err)
	}
	l.mustHandle(add)
	l.mustHandle(check)

	del := l.request(cni.CommandDel, "sb1", "web", "u1")
	l.mustHandle(del)
	if got := l.ports(); got != "" {
		t.Errorf("DEL left ports %s", got)
	}
	if got := l.ns.Run("nft", "list", "ruleset"); strings.Contains(got, "chain") {
		t.Errorf("DEL left nftables chains:\n%s", got)
	}
	if _, err := l.handle(check); err == nil {
		t.Error("CHECK after DEL says nothing")
	}
	l.mustHandle(del)
	l.crash("sb1")
	del.Netns = ""
	l.mustHandle(del)
}

func squeeze(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

func TestAddWaitsForTheMaster(t *testing.T) {
	l := newLab(t)
	l.pod("web", "u1", "")
	l.sandbox("sb1")
	failed := make(chan error, 1)
	done := l.ns.Go(func() {
		_, err := l.handle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
		failed <- err
	})
	eventually.True(t, "ADD to begin", func() bool { return l.server.locks.busy("sb1") })
	p, err := l.kube.CoreV1().Pods("ns").Get(context.Background(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	value := podNetwork
	if err := kube.PatchPod(context.Background(), l.kube, p, kube.Metadata{Annotations: map[string]*string{kube.AnnotationPodNetworks: &value}}); err != nil {
		t.Fatal(err)
	}
	<-done
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// waits waits until an ADD reports what it waits for, and its limit.
func (l *lab) waits(want string) {
	l.t.Helper()
	eventually.True(l.t, "the wait "+want, func() bool {
		return slices.ContainsFunc(waits.All(), func(w waits.Wait) bool {
			return strings.HasPrefix(w.String(), want) && w.Limit == l.server.Deadline
		})
	}, eventually.Dump(func() string { return fmt.Sprint(waits.All()) }))
}

// TestAddWaitsForEgressPolicies: a pod selected by an EgressIP starts only when the pending
// annotation is gone.
func TestAddWaitsForEgressPolicies(t *testing.T) {
	l := newLab(t)
	l.pod("web", "u1", podNetwork)
	mark := func(value *string) {
		p, err := l.kube.CoreV1().Pods("ns").Get(context.Background(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := kube.PatchPod(context.Background(), l.kube, p, kube.Metadata{Annotations: map[string]*string{kube.AnnotationEgressPending: value}}); err != nil {
			t.Fatal(err)
		}
	}
	mark(kube.Value("prod"))
	eventually.True(t, "the informer to see the mark", func() bool {
		p, err := l.pods.Core().V1().Pods().Lister().Pods("ns").Get("web")
		return err == nil && p.Annotations[kube.AnnotationEgressPending] == "prod"
	})
	l.sandbox("sb1")
	failed := make(chan error, 1)
	done := l.ns.Go(func() {
		_, err := l.handle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
		failed <- err
	})
	eventually.True(t, "the pod to be attached", func() bool {
		return strings.Contains(l.vs.Run("ovs-vsctl", "--columns=external_ids", "list", "interface"), "ovn-installed")
	})
	l.waits(`cni "ns/web" waits for the egress policies: those of EgressIP prod are not in force yet: is an ovnkube master running? (since `)
	select {
	case err := <-failed:
		t.Fatalf("ADD returned with the mark still there: %v", err)
	default:
	}
	mark(nil)
	<-done
	if all := waits.All(); slices.ContainsFunc(all, func(w waits.Wait) bool { return w.Object != "" }) {
		t.Errorf("ADD is over, and waits are %v", all)
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// TestAddEnds: the reasons why a waiting ADD ends, and that it leaves nothing behind.
func TestAddEnds(t *testing.T) {
	for _, c := range []struct {
		name, network string
		stall         bool
		end           func(l *lab) // nil: its deadline
		want          string
	}{
		{"pod deleted, no address yet", "", false, func(l *lab) { l.deletePod("web") }, errPodGone.Error()},
		{"pod deleted, no flows yet", podNetwork, true, func(l *lab) { l.deletePod("web") }, errPodGone.Error()},
		{"sandbox deleted", podNetwork, true, func(l *lab) {
			if _, err := l.handle(l.request(cni.CommandDel, "sb1", "web", "u1")); err != nil {
				l.t.Error(err)
			}
		}, errSuperseded.Error()},
		{"no address in time", "", false, nil, "is an ovnkube master running?"},
		{"no flows in time", podNetwork, true, nil, "logical port ns_web must exist"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.stall(c.stall)
			l.pod("web", "u1", c.network)
			l.sandbox("sb1")
			var err error
			if c.end == nil {
				// On a busy machine the deadline may pass before it waits for that.
				for l.server.Deadline = time.Second; l.server.Deadline < eventually.Bound; l.server.Deadline *= 2 {
					<-l.ns.Go(func() { _, err = l.handle(l.request(cni.CommandAdd, "sb1", "web", "u1")) })
					if err == nil || strings.Contains(err.Error(), c.want) {
						break
					}
				}
			} else {
				failed := make(chan error, 1)
				done := l.ns.Go(func() {
					_, err := l.handle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
					failed <- err
				})
				if c.stall {
					eventually.True(t, "the port", func() bool { return l.ports() != "" })
				} else {
					eventually.True(t, "ADD to begin", func() bool { return l.server.locks.busy("sb1") || len(failed) > 0 })
				}
				c.end(l)
				<-done
				err = <-failed
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ADD ended with %v, want %q", err, c.want)
			}
			if got := l.ports(); got != "" {
				t.Errorf("ADD left ports %s", got)
			}
			if got := l.ns.Run("ip", "-n", "sb1", "-br", "link"); strings.Contains(got, "eth0") {
				t.Errorf("ADD left links in the sandbox:\n%s", got)
			}
		})
	}
}

func TestAddRefuses(t *testing.T) {
	l := newLab(t)
	l.sandbox("sb1")
	l.pod("web", "new", podNetwork)
	for _, c := range []struct {
		name string
		r    cni.Request
		want string
	}{
		{"no such pod", l.request(cni.CommandAdd, "sb1", "other", "u1"), "the pod is gone"},
		{"another pod of that name", l.request(cni.CommandAdd, "sb1", "web", "old"), "it has uid new now, not old"},
		{"no pod", cni.Request{Command: cni.CommandAdd, ContainerID: "sb1", Netns: "/run/netns/sb1", IfName: "eth0"}, "CNI_ARGS name no pod"},
		{"no namespace", cni.Request{Command: cni.CommandAdd, ContainerID: "sb1", IfName: "eth0", Args: l.request("", "", "web", "").Args}, "CNI_NETNS"},
		{"unknown command", cni.Request{Command: "FLY"}, "unknown CNI command FLY"},
	} {
		if _, err := l.handle(c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestNewSandbox: a pod gets a new sandbox without DEL of the old one.
func TestNewSandbox(t *testing.T) {
	l := newLab(t)
	l.pod("web", "u1", podNetwork)
	l.sandbox("sb1")
	l.sandbox("sb2")
	l.mustHandle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
	l.mustHandle(l.request(cni.CommandAdd, "sb2", "web", "u1"))
	if got, want := l.ports(), cni.HostLink("sb2", "eth0"); got != want {
		t.Errorf("ports are %s, want %s only", got, want)
	}
	l.mustHandle(l.request(cni.CommandDel, "sb1", "web", "u1"))
	if got, want := l.ports(), cni.HostLink("sb2", "eth0"); got != want {
		t.Errorf("after the old DEL ports are %s, want %s", got, want)
	}
}

func TestCollect(t *testing.T) {
	l := newLab(t)
	for _, p := range []string{"alive", "crashed", "forced"} {
		l.pod(p, p, podNetwork)
		l.sandbox(p)
		l.mustHandle(l.request(cni.CommandAdd, p, p, p))
	}
	l.vs.Run("ovs-vsctl", "add-port", "br-int", "foreign", "--", "set", "interface", "foreign", "type=internal")
	l.crash("crashed")
	eventually.True(t, "the kernel to remove the pair", func() bool {
		_, err := l.ns.Try("ip", "link", "show", cni.HostLink("crashed", "eth0"))
		return err != nil
	})
	l.deletePod("forced")
	if err := l.server.collect(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(cni.HostLink("alive", "eth0") + " foreign")
	if got := strings.Fields(l.ports()); strings.Join(got, " ") != strings.Join(sorted(want), " ") {
		t.Errorf("left are %v, want %v", got, want)
	}
	gc := l.request(cni.CommandGC, "", "", "")
	gc.Config = json.RawMessage(`{"cniVersion":"1.1.0","name":"ovn-kubernetes","type":"x","cni.dev/valid-attachments":[]}`)
	l.mustHandle(gc)
	if got := l.ports(); got != "foreign" {
		t.Errorf("GC left %s", got)
	}
}

// TestStaticPod: the port of a static pod belongs to the pod, whatever mirror the API has,
// and is removed only with its sandbox.
func TestStaticPod(t *testing.T) {
	l := newLab(t)
	const hash = "5795a88e7538fed15bd850ac41358d25"
	mirror := func(uid string) {
		l.pod("web", uid, podNetwork)
		l.bindings.set(t, "ns_web", hash, given)
		l.update(func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = hash })
	}
	mirror("u1")
	l.sandbox("sb1")
	l.mustHandle(l.request(cni.CommandAdd, "sb1", "web", hash))
	name := cni.HostLink("sb1", "eth0")
	is := func(when, want string) {
		t.Helper()
		if err := l.server.collect(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := l.ports(); got != want {
			t.Errorf("%s: ports are %q, want %q", when, got, want)
		}
	}
	is("with its mirror", name)
	if got := l.vs.Run("ovs-vsctl", "get", "interface", name, "external_ids:iface-id-ver"); !strings.Contains(got, hash) {
		t.Errorf("the port is for %s", got)
	}
	l.deletePod("web")
	is("without a mirror", name)
	mirror("u2")
	is("with another mirror", name)
	l.deletePod("web")
	l.crash("sb1")
	eventually.True(t, "the kernel to remove the pair", func() bool {
		_, err := l.ns.Try("ip", "link", "show", name)
		return err != nil
	})
	is("without its sandbox", "")
}

func TestCleanup(t *testing.T) {
	l := newLab(t)
	l.pod("web", "u1", podNetwork)
	l.sandbox("sb1")
	l.mustHandle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
	dir := l.server.ConfDir
	if err := writeConf(dir, cni.ConfFile("x", cni.DefaultSocket, true)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Cleanup(context.Background(), dir, l.db); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) > 0 || l.ports() != "" {
			t.Errorf("left are files %v, ports %q, %v", files, l.ports(), err)
		}
		if got := l.ns.Run("ip", "-n", "sb1", "-br", "link"); strings.Contains(got, "eth0") {
			t.Errorf("the sandbox has\n%s", got)
		}
	}
}

func sorted(words []string) []string {
	slices.Sort(words)
	return words
}
