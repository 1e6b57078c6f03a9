package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/retry"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	egressipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	self  = "ovn-worker"
	other = "ovn-worker2"
)

// world is a node's surroundings: an API server, a bridge and the neighbours on
// its network. log contains the actions, in order.
type world struct {
	t     *testing.T
	kube  *kubefake.Clientset
	api   *egressipfake.Clientset
	flows *breth0
	ready chan struct{}

	addrs    *hostfake.Kernel[host.Address, host.AddressUse]
	routes   *hostfake.Kernel[host.Route, host.Hop]
	ipRules  *hostfake.Kernel[host.IPRule, struct{}]
	settings *hostfake.Kernel[string, string]
	chains   *hostfake.Chains
	faults   *fakeapi.Faults             // of the API, or nil
	sweep    func(context.Context) error // of the kernel, for the last run

	mu         sync.Mutex
	log        []string
	networks   []host.Network
	wake       func()
	informed   int // number of informers of pods created
	flushed    []string
	tracked    []string // more connections than every world has, as "pod address"
	applied    func()   // reports that the chassis has applied the master's changes
	silence    time.Duration
	listed     atomic.Int64                     // EgressIPs listed by the controller's lister
	ports      map[string]topology.PodAddresses // of the southbound database
	noPorts    error                            // why they are unknown
	tell       func(port string)
	know       func() // ends noPorts
	begun      func() // called when a run starts
	unlisted   bool   // the addresses of API servers are not listed until list is called
	list       func()
	forget     func() // called while connections are forgotten
	announcing func() // called while an address is announced
	ovn        translating
	// left is the state of an earlier run on the bridge, and noLeft why it is unknown.
	left   struct{ held, suppressed []netip.Addr }
	noLeft error
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{t: t, kube: fakeapi.NewClientset(node()), api: egressipfake.NewSimpleClientset(objects...), ready: make(chan struct{}), ovn: newTranslating(), ports: map[string]topology.PodAddresses{}}
	fakeapi.Strict(w.kube)
	fakeapi.Strict(w.api)
	w.addrs = hostfake.NewKernel(map[host.Address]host.AddressUse{})
	w.routes = hostfake.NewKernel(map[host.Route]host.Hop{})
	w.ipRules = hostfake.NewKernel(map[host.IPRule]struct{}{})
	w.ipRules.Overlap = true
	w.settings = hostfake.NewKernel(map[string]string{})
	w.chains = hostfake.NewChains(egressip.Chains(topology.Families))
	w.networks = []host.Network{
		{Link: "breth0", Index: 4, Addrs: prefixes("172.18.0.3/16", "fc00:f853:ccd:e793::3/64")},
		dummy("dummy"),
	}
	w.flows = &breth0{Flows: hostfake.NewFlows(), w: w}
	close(w.ready)
	w.api.PrependReactor("patch", "egressips", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.note("say " + string(a.(clienttesting.PatchAction).GetPatch()))
		return false, nil, nil
	})
	return w
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// dummy is a link with two networks, with the documented table number.
func dummy(name string) host.Network {
	return host.Network{Link: name, Index: 111, Addrs: prefixes("10.10.10.3/24", "fd10::3/64"), Routes: []host.LinkRoute{
		{Dst: netip.MustParsePrefix("10.10.10.0/24"), Table: 254, Scope: 253},
		{Dst: netip.MustParsePrefix("192.0.2.0/24"), Table: 254, Via: netip.MustParseAddr("10.10.10.1")},
		{Dst: netip.MustParsePrefix("fd10::/64"), Table: 254},
	}}
}

// setNetworks changes the host's links.
func (w *world) setNetworks(networks ...host.Network) {
	w.mu.Lock()
	w.networks = networks
	wake := w.wake
	w.mu.Unlock()
	wake()
}

// kernel is the host's kernel as accessed by the controller.
func (w *world) kernel() Kernel {
	always := func(struct{}, struct{}) bool { return true }
	return Kernel{
		Addrs:    host.NewSet("addresses", w.addrs, func(a, b host.AddressUse) bool { return a == b }),
		Routes:   host.NewSet("routes", w.routes, func(a, b host.Hop) bool { return a == b }),
		IPRules:  host.NewSet("ip rules", w.ipRules, always),
		Rules:    w.ipRules.List,
		Settings: host.NewSet("kernel parameters", w.settings, func(a, b string) bool { return a == b }),
		Chains:   w.chains,
		Networks: func() ([]host.Network, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.networks), nil
		},
		Watch: func(_ context.Context, changed func()) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.wake = changed
			if w.begun != nil {
				go w.begun()
			}
			return nil
		},
		Flush: func(_ context.Context, stale func(src, to netip.Addr) bool, _ []netip.Addr) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, c := range append([]string{"10.244.1.3 172.18.0.3", "10.244.1.3 10.10.10.5"}, w.tracked...) {
				src, to, _ := strings.Cut(c, " ")
				if stale(netip.MustParseAddr(src), netip.MustParseAddr(to)) {
					w.flushed = append(w.flushed, c)
				}
			}
			return nil
		},
	}
}

// ended returns the connections that were flushed.
func (w *world) ended() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.flushed)
}

// track adds a connection of a pod, whose other side sees another address, and forgets what was flushed.
func (w *world) track(connections ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tracked, w.flushed = append(w.tracked, connections...), nil
}

// writes counts the writes to the kernel.
func (w *world) writes() int {
	return w.addrs.Writes() + w.routes.Writes() + w.ipRules.Writes() + w.settings.Writes() + w.chains.Writes()
}

// dump prints the kernel state, like the tools of the documentation.
func (w *world) dump() string {
	var out strings.Builder
	for _, f := range topology.Families {
		out.WriteString(w.chains.Dump(f))
	}
	out.WriteString(hostfake.DumpIPRules(w.ipRules.Objects()) + hostfake.DumpRoutes(w.routes.Objects()) + hostfake.DumpAddresses(w.addrs.Objects()))
	settings := w.settings.Objects()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		out.WriteString(name + " = " + settings[name] + "\n")
	}
	return out.String()
}

// fakePorts are the ports of the southbound database for one run.
type fakePorts struct {
	w      *world
	synced chan struct{}
}

func (f *fakePorts) Run(ctx context.Context) error {
	f.w.mu.Lock()
	f.w.know = func() {
		f.w.mu.Lock()
		f.w.noPorts = nil
		f.w.mu.Unlock()
		close(f.synced)
	}
	there, know := f.w.noPorts == nil, f.w.know
	f.w.mu.Unlock()
	if there {
		know()
	}
	<-ctx.Done()
	return nil
}

func (f *fakePorts) Port(name string) (topology.PodAddresses, bool) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	p, ok := f.w.ports[name]
	return p, ok
}

func (f *fakePorts) OnChange(tell func(string)) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.tell = tell
}

func (f *fakePorts) Synced() <-chan struct{} { return f.synced }

func (f *fakePorts) Err() error {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return f.w.noPorts
}

// port sets the addresses of a pod's port, or removes the port.
func (w *world) port(namespace, name, uid string, addrs ...string) {
	w.t.Helper()
	p := topology.PodAddresses{UID: uid}
	for _, a := range addrs {
		p.Addrs = append(p.Addrs, netip.MustParsePrefix(a).Addr())
	}
	w.mu.Lock()
	if w.ports[topology.PodPort(namespace, name)] = p; len(addrs) == 0 {
		delete(w.ports, topology.PodPort(namespace, name))
	}
	tell := w.tell
	w.mu.Unlock()
	if tell != nil {
		tell(topology.PodPort(namespace, name))
	}
}

// pod creates a pod with addresses in a namespace labelled team=NAMESPACE.
func (w *world) pod(namespace, name string, addrs ...string) {
	w.t.Helper()
	w.port(namespace, name, "uid-"+name, addrs...)
	w.bare(namespace, name, other, "")
}

// bare creates a pod on a node, with the given annotation.
func (w *world) bare(namespace, name, node, annotation string) {
	w.t.Helper()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"team": namespace}}}
	if _, err := w.kube.CoreV1().Namespaces().Create(w.t.Context(), space, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
	_, err := w.kube.CoreV1().Pods(namespace).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name},
			Annotations: map[string]string{kube.AnnotationPodNetworks: annotation}},
		Spec: corev1.PodSpec{NodeName: node},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// self returns the node.
func (w *world) self() *corev1.Node {
	w.t.Helper()
	n, err := w.kube.CoreV1().Nodes().Get(w.t.Context(), self, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// recorded returns the annotation of the node.
func (w *world) recorded() string {
	w.t.Helper()
	return w.self().Annotations[kube.AnnotationEgressIPAddresses]
}

// record writes the annotation of the node; empty removes it.
func (w *world) record(value string) {
	w.t.Helper()
	n := w.self()
	change := map[string]*string{kube.AnnotationEgressIPAddresses: nil}
	if value != "" {
		change[kube.AnnotationEgressIPAddresses] = &value
	}
	if err := kube.PatchNode(w.t.Context(), w.kube, n, kube.Metadata{Annotations: change}); err != nil {
		w.t.Fatal(err)
	}
}

func node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: self, UID: "node", Annotations: map[string]string{
		kube.AnnotationPrimaryIfAddr: `{"ipv4":"172.18.0.3/16","ipv6":"fc00:f853:ccd:e793::3/64"}`,
		kube.AnnotationHostAddresses: `["172.18.0.3/16","fc00:f853:ccd:e793::3/64"]`,
		kube.AnnotationL3Gateway: `{"default":{"mode":"local","interface-id":"breth0_ovn-worker",` +
			`"mac-address":"02:42:ac:12:00:03","ip-addresses":["172.18.0.3/16","fc00:f853:ccd:e793::3/64"],"next-hops":["172.18.0.1","fc00:f853:ccd:e793::1"]}}`,
	}}}
}

// node creates another node, like this one except for the last parts of its addresses.
func (w *world) node(name string, addr, mac string, more ...string) {
	w.t.Helper()
	n := node()
	n.Name = name
	for key, value := range n.Annotations {
		n.Annotations[key] = strings.NewReplacer(".0.3", addr, "00:03", mac).Replace(value)
	}
	if len(more) > 0 {
		n.Annotations[kube.AnnotationHostAddresses] = `["` + strings.Join(more, `","`) + `"]`
	}
	if _, err := w.kube.CoreV1().Nodes().Create(w.t.Context(), n, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, what)
}

// did returns the actions since the last call.
func (w *world) did() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.log
	w.log = nil
	return out
}

// Start implements Announcer.
func (w *world) Start(link string, addr netip.Addr) error {
	w.mu.Lock()
	announcing := w.announcing
	w.mu.Unlock()
	if announcing != nil {
		announcing()
	}
	w.note(fmt.Sprintf("announce %s on %s", addr, link))
	return nil
}

// Solicit implements Announcer.
func (w *world) Solicit(link string, from, neighbour netip.Addr) error {
	w.note(fmt.Sprintf("ask for %s as %s on %s", neighbour, from, link))
	return nil
}

// Stop implements Announcer.
func (w *world) Stop(addr netip.Addr) { w.note("stop announcing " + addr.String()) }

// start runs the controller; stop ends it like a killed process.
func (w *world) start() (stop func()) {
	w.t.Helper()
	_, stop = w.run()
	return stop
}

func (w *world) run() (c *Controller, stop func()) {
	w.t.Helper()
	core, own := informers.NewSharedInformerFactory(w.kube, fakeapi.NoResync), externalversions.NewSharedInformerFactory(w.api, fakeapi.NoResync)
	servers := informers.NewSharedInformerFactory(w.kube, fakeapi.NoResync)
	addresses, err := reservedsnapshot.New(reserved.Ranges{}, reservedsnapshot.Informers{Nodes: core.Core().V1().Nodes(), EndpointSlices: servers.Discovery().V1().EndpointSlices()})
	if err != nil {
		w.t.Fatal(err)
	}
	kernel := w.kernel()
	w.sweep = func(ctx context.Context) error {
		return errors.Join(kernel.Addrs.Sweep(ctx), kernel.Routes.Sweep(ctx), kernel.IPRules.Sweep(ctx), kernel.Settings.Sweep(ctx))
	}
	c, err = New(Deps{Node: self, EgressIPs: countedEgressIPs{own.EgressIP().V1().EgressIPs(), &w.listed}, Nodes: core.Core().V1().Nodes(),
		Client: w.api, Kube: w.kube, Flows: w.flows, Announcer: w, Ready: w.ready, ReachabilityTimeout: w.silence, Kernel: kernel,
		Left: func(context.Context) (held, suppressed []netip.Addr, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.left.held, w.left.suppressed, w.noLeft
		},
		Forget: func(_ context.Context, addrs []netip.Addr) error {
			if w.forget != nil {
				w.forget()
			}
			for _, a := range addrs {
				w.note("forget " + a.String())
			}
			return nil
		},
		OnApplied:          func(f func()) { w.applied = f },
		FollowTranslations: w.followTranslations, FlushTranslations: w.flushTranslations,
		Addresses: addresses,
		Record:    NewRecord(self, w.kube, core.Core().V1().Nodes()),
		Ports:     &fakePorts{w: w, synced: make(chan struct{})},
		Cluster:   prefixes("10.244.0.0/16", "fd00:10:244::/48"),
		Pods: func() informers.SharedInformerFactory {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.informed++
			return informers.NewSharedInformerFactory(w.kube, fakeapi.NoResync)
		}})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.faults.Start(ctx, w.t, w.kube, core)
	w.faults.Start(ctx, w.t, w.api, own)
	list := func() { w.faults.Start(ctx, w.t, w.kube, servers) }
	if w.list = list; !w.unlisted {
		list()
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				w.t.Errorf("Run: %v", err)
			}
			core.Shutdown()
			own.Shutdown()
			servers.Shutdown()
		})
	}
	w.t.Cleanup(stop)
	<-c.Synced() // with a failing kernel this may take many attempts
	return c, stop
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	eventually.True(w.t, what, ok, eventually.Dump(func() string { return fmt.Sprint(w.flows.Dump(), w.did()) }))
}

// object creates an EgressIP; items are "address node" and programmed "node address...".
func object(name string, addrs []string, items []string, programmed ...string) *v1.EgressIP {
	e := &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	for _, a := range addrs {
		e.Spec.EgressIPs = append(e.Spec.EgressIPs, v1.Address(a))
	}
	give(e, items...)
	for _, p := range programmed {
		words := strings.Fields(p)
		e.Status.Programmed = append(e.Status.Programmed, v1.ProgrammedStatus{Node: words[0], EgressIPs: words[1:]})
	}
	return e
}

// give sets the items.
func give(e *v1.EgressIP, items ...string) {
	e.Status.Items = nil
	for _, i := range items {
		words := strings.Fields(i)
		network := "172.18.0.0/16"
		if strings.Contains(words[0], ":") {
			network = "fc00:f853:ccd:e793::/64"
		}
		switch {
		case strings.HasPrefix(words[0], "10.10."):
			network = "10.10.10.0/24"
		case strings.HasPrefix(words[0], "fd10:"):
			network = "fd10::/64"
		}
		e.Status.Items = append(e.Status.Items, v1.EgressIPStatusItem{EgressIP: words[0], Node: words[1], Network: network})
	}
}

func (w *world) get(name string) *v1.EgressIP {
	w.t.Helper()
	e, err := w.api.EgressIPV1().EgressIPs().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// change updates an EgressIP as the master does.
func (w *world) change(name string, f func(*v1.EgressIP)) {
	w.t.Helper()
	// The node may write its status entry in between.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		e := w.get(name).DeepCopy()
		f(e)
		_, err := w.api.EgressIPV1().EgressIPs().Update(w.t.Context(), e, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// words returns the nodes' status entries, as "node address...".
func (w *world) words(name string) []string {
	w.t.Helper()
	var out []string
	for _, p := range w.get(name).Status.Programmed {
		out = append(out, strings.TrimSpace(p.Node+" "+strings.Join(p.EgressIPs, " ")))
	}
	return out
}

func (w *world) saysEventually(name string, want ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the words on %s to be %v", name, want), func() bool { return slices.Equal(w.words(name), want) })
}

// gated returns the suppressed ones of the addresses.
func (w *world) gated(addrs ...string) []string {
	var out []string
	for _, a := range addrs {
		match, _, _ := strings.Cut(string(bridge.SuppressARP(netip.MustParseAddr(a), false)), ",actions=")
		if strings.Contains(w.flows.Dump(), match+",") {
			out = append(out, a)
		}
	}
	return out
}

// opened returns the addresses for which the bridge delivers packets to OVN.
func (w *world) opened(addrs ...string) []string {
	var out []string
	for _, a := range addrs {
		if strings.Contains(w.flows.Dump(), "_dst="+a+",actions=output:PATCH") {
			out = append(out, a)
		}
	}
	return out
}

// meanwhile changes an EgressIP from inside a reactor, which cannot call the
// client.
func (w *world) meanwhile(name string, f func(*v1.EgressIP)) {
	resource := v1.SchemeGroupVersion.WithResource("egressips")
	obj, err := w.api.Tracker().Get(resource, "", name)
	if err != nil {
		w.t.Error(err)
		return
	}
	e := obj.(*v1.EgressIP).DeepCopy()
	f(e)
	if err := w.api.Tracker().Update(resource, e, ""); err != nil {
		w.t.Error(err)
	}
}

var errBusy = errors.New("somebody else was faster")
