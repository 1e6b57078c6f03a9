package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const podNetwork = `{"default":{"ip_addresses":["10.244.1.5/24","fd00:10:244:2::5/64"],` +
	`"mac_address":"0a:58:0a:f4:01:05","gateway_ips":["10.244.1.1","fd00:10:244:2::1"]}}`

// lab is a node with a real Open vSwitch, a fake API server and a server whose
// requests run on the test's goroutine.
type lab struct {
	t        *testing.T
	ns       *netnstest.NS
	vs       *netnstest.OVS
	db       *ovs.DB
	kube     *fake.Clientset
	pods     informers.SharedInformerFactory
	server   *Server
	bindings *fakePorts
	ready    chan struct{}
	netns    map[string]int // file descriptors of sandboxes

	mu      sync.Mutex
	stalled bool // ovn-controller does not install flows
}

// newLab returns a node whose network is ready.
func newLab(t *testing.T) *lab {
	t.Helper()
	l := newLabNotReady(t)
	close(l.ready)
	return l
}

func newLabNotReady(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, ns: netnstest.New(t, netnstest.PrivateMounts()), ready: make(chan struct{}), netns: map[string]int{}}
	l.vs = l.ns.OVS()
	l.ns.Run("mkdir", "-p", "/run/netns")
	l.vs.Run("ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-datapath-type=netdev",
		"--", "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	l.db = ovs.New(ctx, l.vs.Endpoint())
	l.controller(ctx)
	l.kube = fakeapi.NewClientset()
	l.bindings = newFakePorts()
	l.pods = informers.NewSharedInformerFactory(l.kube, 0)
	var err error
	l.server, err = New(Config{MTU: 1400, Socket: filepath.Join(t.TempDir(), "cni.sock"), ConfDir: t.TempDir(), BinDir: t.TempDir(), Plugin: "ovn-k8s-cni-overlay", Deadline: eventually.Bound},
		Deps{Kube: l.kube, Pods: l.pods.Core().V1().Pods(), OVS: l.db, Ready: l.ready, Ports: l.bindings,
			Subnets: func() []netip.Prefix {
				return []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:2::/64")}
			}})
	if err != nil {
		t.Fatal(err)
	}
	fakeapi.Start(ctx, t, l.kube, l.pods)
	return l
}

// controller does what ovn-controller does for a port whose flows are installed.
func (l *lab) controller(ctx context.Context) {
	changed := make(chan struct{}, 1)
	l.db.OnInterface(func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	go func() {
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			l.install(ctx)
		}
	}()
}

func (l *lab) install(ctx context.Context) {
	l.mu.Lock()
	stalled := l.stalled
	l.mu.Unlock()
	ports, err := l.db.Ports(ctx, "br-int")
	if err != nil || stalled {
		return
	}
	for _, p := range ports {
		if p.ExternalIDs[ovs.IfaceID] != "" && p.ExternalIDs[ovs.Installed] == "" {
			_ = l.db.EnsurePort(ctx, ovs.Port{Bridge: "br-int", Name: p.Name, Type: p.Type,
				ExternalIDs: map[string]string{ovs.Installed: "true"}})
		}
	}
}

func (l *lab) stall(on bool) {
	l.mu.Lock()
	l.stalled = on
	l.mu.Unlock()
	if !on {
		l.install(context.Background())
	}
}

// fakePorts are the ports of the southbound database.
type fakePorts struct {
	mu    sync.Mutex
	ports map[string]topology.PodAddresses
	err   error
	tell  func(string)
}

func newFakePorts() *fakePorts { return &fakePorts{ports: map[string]topology.PodAddresses{}} }

func (f *fakePorts) Port(name string) (topology.PodAddresses, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.ports[name]
	return p, ok
}

func (f *fakePorts) OnChange(tell func(string)) { f.tell = tell }

func (f *fakePorts) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// set sets the addresses of a port; "" removes it.
func (f *fakePorts) set(t *testing.T, name, uid, addresses string) {
	t.Helper()
	p, ok := topology.ParsePodAddresses(addresses)
	if !ok && addresses != "" {
		t.Fatalf("%q are no addresses", addresses)
	}
	p.UID = uid
	f.mu.Lock()
	if f.ports[name] = p; addresses == "" {
		delete(f.ports, name)
	}
	f.mu.Unlock()
	f.tell(name)
}

// given are the addresses in podNetwork.
const given = "0a:58:0a:f4:01:05 10.244.1.5 fd00:10:244:2::5"

// pod creates a pod in the API that has been assigned its addresses; network is its
// annotation, "" for none yet.
func (l *lab) pod(name, uid, network string) {
	l.t.Helper()
	l.bindings.set(l.t, topology.PodPort("ns", name), uid, given)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	if network != "" {
		p.Annotations = map[string]string{kube.AnnotationPodNetworks: network}
	}
	if _, err := l.kube.CoreV1().Pods("ns").Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) deletePod(name string) {
	l.t.Helper()
	if err := l.kube.CoreV1().Pods("ns").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		l.t.Fatal(err)
	}
	eventually.True(l.t, "the informer to see the deletion", func() bool {
		_, err := l.pods.Core().V1().Pods().Lister().Pods("ns").Get(name)
		return err != nil
	})
}

// sandbox creates a network namespace as the runtime does. Its path is that of a file
// descriptor, which is visible to goroutines outside the test's mount namespace too.
func (l *lab) sandbox(name string) {
	l.t.Helper()
	l.ns.Run("ip", "netns", "add", name)
	fd, err := unix.Open("/run/netns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	l.netns[name] = fd
	l.t.Cleanup(func() { l.crash(name) })
}

// crash ends a sandbox: nothing holds its network namespace any more.
func (l *lab) crash(name string) {
	if fd, ok := l.netns[name]; ok {
		_ = unix.Close(fd)
		delete(l.netns, name)
		_, _ = l.ns.Try("ip", "netns", "del", name)
	}
}

func (l *lab) request(command, sandbox, pod, uid string) cni.Request {
	path := "/run/netns/" + sandbox
	if fd, ok := l.netns[sandbox]; ok {
		path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	}
	return cni.Request{
		Command: command, ContainerID: sandbox, Netns: path, IfName: "eth0",
		Args:   "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=" + pod + ";K8S_POD_UID=" + uid,
		Config: pluginConf(cni.DefaultSocket),
	}
}

// pluginConf returns what the runtime passes to the plugin from the configuration file.
func pluginConf(socket string) []byte {
	return fmt.Appendf(nil, `{"cniVersion": %q, "name": %q, "type": "ovn-k8s-cni-overlay", "socket": %q}`, cni.SpecVersion, cni.NetworkName, socket)
}

func (l *lab) handle(r cni.Request) (any, error) {
	return l.server.Handle(context.Background(), r)
}

func (l *lab) mustHandle(r cni.Request) *current.Result {
	l.t.Helper()
	out, err := l.handle(r)
	if err != nil {
		l.t.Fatalf("%s: %v", r.Command, err)
	}
	result, _ := out.(*current.Result)
	return result
}

// withPrevious adds the result of ADD to the configuration, as runtimes do.
func withPrevious(t *testing.T, r cni.Request, result *current.Result) cni.Request {
	t.Helper()
	conf := map[string]any{}
	if err := json.Unmarshal(r.Config, &conf); err != nil {
		t.Fatal(err)
	}
	conf["prevResult"] = result
	text, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	r.Config = text
	return r
}

// ports lists the ports of br-int.
func (l *lab) ports() string { return l.vs.Run("ovs-vsctl", "list-ports", "br-int") }
