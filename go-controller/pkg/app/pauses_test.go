package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	podmaster "github.com/ovnkube/ovnkube/go-controller/pkg/pod/master"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Environment variables of a process that assigns addresses to pods as a leader does.
const (
	pausedDatabase = "PAUSES_TEST_DATABASE"
	pausedDir      = "PAUSES_TEST_DIR" // the API server: who leads, and what pods there are
	pausedName     = "PAUSES_TEST_NAME"
)

const (
	// pausedBurst is how many pods are added before a leader is stopped, and after the next one
	// leads.
	pausedBurst = 4
	// pausedLeaders is how many leaders one run stops; SEEDS=4 makes it a hundred.
	pausedLeaders = 25
	// formerFor is how long a former leader runs once it could know that it no longer leads.
	formerFor = 300 * time.Millisecond
)

// givesAddresses is that process. Its API server has the pods whose files are in a directory, with
// its own timing: when a former leader resumes, it still has what it has read and what it was about
// to write.
func givesAddresses() error {
	dir, name := os.Getenv(pausedDir), os.Getenv(pausedName)
	leads := func(context.Context) error {
		if leader, err := os.ReadFile(filepath.Join(dir, "leader")); err != nil || string(leader) != name {
			return fmt.Errorf("%s leads, not %s: %w", leader, name, err)
		}
		return nil
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: os.Getenv(pausedDatabase), Fence: &ovsdb.Fence{Writer: name, Confirm: leads}})
	if err != nil {
		return err
	}
	cs := fakeapi.NewClientset(pausedNode())
	if err := podsOf(ctx, cs, dir, nil); err != nil {
		return err
	}
	informers := kube.NewInformers(cs)
	ctl, err := podmaster.New(podmaster.Deps{
		Client: cs, Pods: informers.Core().V1().Pods(), Nodes: informers.Core().V1().Nodes(),
		Writer: ovsdb.NewWriter(client), Recorder: record.NewFakeRecorder(10000), Config: pod.Config{},
	})
	if err != nil {
		return err
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	go func() { _ = ctl.Run(ctx) }()
	known := func(pod string) bool {
		_, err := informers.Core().V1().Pods().Lister().Pods("ns").Get(pod)
		return err == nil
	}
	var former time.Time
	for former.IsZero() || time.Since(former) < formerFor {
		if err := podsOf(ctx, cs, dir, known); err != nil {
			return err
		}
		if leads(ctx) != nil && former.IsZero() {
			former = time.Now()
		}
		<-time.After(2 * time.Millisecond)
	}
	return nil
}

// podsOf creates the pods given by the files of dir. A fake clientset loses changes that happen
// while an informer starts to watch: unknown pods are updated to notify it again.
func podsOf(ctx context.Context, cs *fake.Clientset, dir string, known func(string) bool) error {
	files, err := os.ReadDir(filepath.Join(dir, "pods"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if known != nil && known(f.Name()) {
			continue
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: f.Name(), UID: types.UID("uid-" + f.Name())},
			Spec: corev1.PodSpec{NodeName: "n"}}
		if _, err := cs.CoreV1().Pods("ns").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			_, _ = cs.CoreV1().Pods("ns").Update(ctx, p, metav1.UpdateOptions{})
		}
	}
	return nil
}

func pausedNode() *corev1.Node {
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, t := range texts {
			out = append(out, netip.MustParsePrefix(t))
		}
		return out
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		kube.AnnotationChassisID:        "n",
		kube.AnnotationNodeSubnets:      kube.FormatNodeSubnets(prefixes("10.244.0.0/18", "fd00:10:244::/64")),
		kube.AnnotationGatewayLRPIfAddr: kube.FormatGatewayLRPIfAddr(prefixes("100.64.0.2/16", "fd98::2/64")),
		kube.AnnotationL3Gateway: kube.FormatL3Gateway(topology.Gateway{
			Mode: topology.GatewayShared, InterfaceID: "breth0_n", MAC: "02:42:ac:12:00:03", Addrs: prefixes("172.18.0.3/16", "fc00::3/64"),
		}),
	}}}
}

// TestPausedMasters makes processes that assign addresses to pods lead one after the other, while
// pods are added. Each is stopped at an arbitrary moment and resumes when the next one leads: no
// address is ever assigned to two pods, and no pod gets a different one.
func TestPausedMasters(t *testing.T) { seeds.Each(t, 1, pauseMasters) }

func pauseMasters(t *testing.T, rng *rand.Rand) {
	s, dir := ovsdbtest.StartNB(t), t.TempDir()
	s.Nbctl("ls-add", "n", "--", "lr-add", "GR_n", "--", "lr-add", "ovn_cluster_router")
	if err := os.Mkdir(filepath.Join(dir, "pods"), 0o700); err != nil {
		t.Fatal(err)
	}
	pods := 0
	more := func() {
		t.Helper()
		for range pausedBurst {
			if err := os.WriteFile(filepath.Join(dir, "pods", fmt.Sprintf("p%05d", pods)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			pods++
		}
	}
	start := func(n int) *exec.Cmd {
		name := fmt.Sprintf("writer-%03d", n)
		leader := filepath.Join(dir, "leader")
		if err := os.WriteFile(leader+".next", []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(leader+".next", leader); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), pausedDatabase+"="+s.Socket(), pausedDir+"="+dir, pausedName+"="+name)
		cmd.Stderr = io.Discard // a former leader is rejected again and again
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		eventually.True(t, name+" to lead", func() bool {
			return strings.Contains(s.Nbctl("get", "NB_Global", ".", "external_ids"), name)
		})
		return cmd
	}
	served := func() {
		t.Helper()
		have := 0
		eventually.True(t, "the pods to be served", func() bool {
			have = strings.Count(s.Nbctl("--bare", "--columns=name", "find", "Logical_Switch_Port"), "ns_p")
			return have >= pods
		}, eventually.Dump(func() string { return fmt.Sprintf("%d of %d pods have ports", have, pods) }))
	}
	cmd := start(0)
	for n := 1; n <= pausedLeaders; n++ {
		more()
		<-time.After(time.Duration(rng.IntN(int(20 * time.Millisecond)))) // at any moment
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		next := start(n)
		more()
		_ = cmd.Process.Signal(syscall.SIGCONT)
		served()
		cmd = next
	}
	distinct(t, s.Journal(), pods)
}

// distinct reads all addresses that pods ever had from the journal of the database.
func distinct(t *testing.T, journal string, pods int) {
	t.Helper()
	holder, of := map[string]string{}, map[string]string{}
	for line := range strings.Lines(journal) {
		var record struct {
			Ports map[string]*struct{ Name, Addresses string } `json:"Logical_Switch_Port"`
		}
		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &record) != nil {
			continue // the schema has none, and other rows have no such columns
		}
		for _, port := range record.Ports {
			if port == nil || port.Name == "" {
				continue
			}
			for _, a := range strings.Fields(port.Addresses) {
				if other, taken := holder[a]; taken && other != port.Name {
					t.Errorf("%s was given to %s and to %s", a, other, port.Name)
				}
				holder[a] = port.Name
			}
			if was, given := of[port.Name]; given && was != port.Addresses {
				t.Errorf("%s was given %s and %s", port.Name, was, port.Addresses)
			}
			of[port.Name] = port.Addresses
		}
	}
	if len(of) != pods {
		t.Errorf("%d of %d pods in the journal", len(of), pods)
	}
}
