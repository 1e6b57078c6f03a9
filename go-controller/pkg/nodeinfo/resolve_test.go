package nodeinfo

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var start = time.Unix(1e9, 0)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

var cluster = Cluster{
	NodeBits:   map[topology.Family]int{topology.IPv4: 24, topology.IPv6: 64},
	Cluster:    prefixes("10.244.0.0/16", "fd00:10:244::/48"),
	Service:    prefixes("10.96.0.0/16", "fd00:10:96::/112"),
	Join:       prefixes("100.64.0.0/16", "fd98::/64"),
	Masquerade: prefixes("169.254.169.0/29", "fd69::/125"),
}

// node is the i-th node with all fields set.
func node(i int) topology.Node {
	name := fmt.Sprint("n", i)
	addrs := prefixes(fmt.Sprintf("172.18.0.%d/16", i), fmt.Sprintf("fc00::%x/64", i))
	return topology.Node{
		Name: name, Chassis: "chassis-" + name, ManagementMAC: fmt.Sprintf("0a:58:0a:f4:%02x:02", i),
		Subnets: prefixes(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%x::/64", i)),
		Join:    prefixes(fmt.Sprintf("100.64.0.%d/16", i+1), fmt.Sprintf("fd98::%x/64", i+1)),
		Primary: addrs, Host: slices.Concat(addrs, prefixes(fmt.Sprintf("10.1.0.%d/24", i))),
		Gateway: topology.Gateway{
			Mode: topology.GatewayShared, InterfaceID: "breth0_" + name, MAC: fmt.Sprintf("02:42:ac:12:00:%02x", i),
			Addrs: addrs, NextHops: []netip.Addr{netip.MustParseAddr("172.18.0.250"), netip.MustParseAddr("fe80::1")},
		},
	}
}

func object(i int, annotations map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint("n", i), UID: types.UID(fmt.Sprint("uid", i)),
		CreationTimestamp: metav1.NewTime(start.Add(time.Duration(i) * time.Minute)), Annotations: annotations,
	}}
}

// world is the effective state of some nodes.
type world struct {
	*resolver
	now  time.Time
	objs map[string]*corev1.Node
}

// begin returns n nodes whose annotations are all effective.
func begin(t *testing.T, owns []string, n int) *world {
	t.Helper()
	w := &world{now: start, objs: map[string]*corev1.Node{}, resolver: newResolver(cluster, owns, Settle)}
	for i := 1; i <= n; i++ {
		o := object(i, kube.FormatNode(node(i)))
		w.objs[o.Name] = o
		w.add(o, nil)
	}
	w.resolve(w.now, true)
	for i := 1; i <= n; i++ {
		if got := w.effective(i); !maps.Equal(got, kube.FormatNode(node(i))) {
			t.Fatalf("in force of n%d are %v, refused %v", i, got, w.refusals())
		}
	}
	return w
}

func (w *world) effective(i int) map[string]string {
	return w.states[fmt.Sprint("n", i)].effective
}

// set writes an annotation of a node, or removes it if the value is "-", and resolves after a while.
func (w *world) set(i int, name, value string, after time.Duration) {
	o := w.objs[fmt.Sprint("n", i)]
	o.Annotations = maps.Clone(o.Annotations)
	if o.Annotations[name] = value; value == "-" {
		delete(o.Annotations, name)
	}
	w.write(o)
	w.resolve(w.now, false)
	w.now = w.now.Add(after)
	w.resolve(w.now, false)
}

func (w *world) why(i int, name string) string {
	return w.states[fmt.Sprint("n", i)].refused[name].why
}

// broken are values that are refused, by annotation.
func broken() map[string][]string {
	list := func(n int) string {
		return `["172.18.0.1/16"` + strings.Repeat(`,"10.99.0.1/24"`, n-1) + `]`
	}
	gateway := func(old, new string) string {
		return strings.Replace(kube.FormatL3Gateway(node(1).Gateway), old, new, 1)
	}
	second := func(id, mac, addr string) string {
		return gateway(`"vlan-id":"0"`, fmt.Sprintf(`"vlan-id":"0","exgw-interface-id":%q,"exgw-mac-address":%q,"exgw-ip-addresses":[%q]`, id, mac, addr))
	}
	const id, mac, addr = "breth1_n1", "02:42:c0:a8:32:01", "192.168.50.1/24"
	nonsense := []string{"", "{", "null", "[]", "{}", "0", `"x"`, "\x00", strings.Repeat("[", 3000), strings.Repeat("x", 200<<10)}
	return map[string][]string{
		kube.AnnotationNodeSubnets: append([]string{
			`{"default":["10.244.77.0/32"]}`, `{"default":["10.244.77.0/31"]}`, `{"default":["10.244.77.0/30"]}`, `{"default":["0.0.0.0/0"]}`,
			`{"default":["10.244.77.1/24"]}`, `{"default":["10.9.0.0/24"]}`, `{"default":["10.244.0.0/15"]}`, `{"default":["10.244.0.0/16"]}`,
			`{"default":["10.244.128.0/17"]}`, `{"default":["10.244.77.0/24","10.244.78.0/24"]}`, `{"default":["::ffff:10.244.77.0/120"]}`,
			`{"default":["fd00:10:244:77::/128"]}`, `{"default":["fd00::/8"]}`, `{"default":[""]}`, `{"default":[]}`, `{"default":null}`, `{"default":""}`,
			`{"default":["fd00:10:244:77::%eth0/64"]}`, `{"other":["10.244.77.0/24"]}`, `{"default":["10.244.2.0/24"]}`, `{"default":["10.244.2.128/25"]}`,
		}, nonsense...),
		kube.AnnotationGatewayLRPIfAddr: append([]string{
			`{"ipv4":"100.65.0.2/16"}`, `{"ipv4":"fd98::9/64"}`, `{"ipv6":"100.64.0.9/16"}`, `{"ipv4":"100.64.0.1/16"}`, `{"ipv4":"100.64.0.3/16"}`,
			`{"ipv4":"100.64.0.0/16"}`, `{"ipv6":"::ffff:100.64.0.9/112"}`, `{"ipv6":"fd98::9%x/64"}`, `{"ipv4":""}`, `{"ipv4":"0.0.0.0/0"}`,
		}, nonsense...),
		kube.AnnotationPrimaryIfAddr: append([]string{
			`{"ipv4":"172.18.0.2/16"}`, `{"ipv4":"10.244.1.7/24"}`, `{"ipv4":"10.96.0.10/16"}`, `{"ipv4":"100.64.0.9/16"}`, `{"ipv4":"169.254.169.3/29"}`,
			`{"ipv4":"127.0.0.1/8"}`, `{"ipv4":"224.0.0.1/8"}`, `{"ipv4":"172.18.0.1/0"}`, `{"ipv6":"fe80::1/64"}`, `{"ipv6":"::ffff:172.18.0.1/112"}`,
		}, nonsense...),
		kube.AnnotationHostAddresses: append([]string{
			`["172.18.0.1/16","172.18.0.2/16"]`, `["0.0.0.0/0"]`, `["172.18.0.1/0"]`, `["::/0"]`, `["fe80::1/64"]`, `["::ffff:10.0.0.1/120"]`, `[""]`,
			`["172.18.0.1"]`, `["255.255.255.255/32"]`, list(1025), list(10000),
		}, slices.DeleteFunc(slices.Clone(nonsense), func(s string) bool { return s == "[]" || s == "null" })...),
		kube.AnnotationL3Gateway: append([]string{
			gateway("shared", "other"), gateway("breth0_n1", "breth0_n2"), gateway("breth0_n1", "_n1"), gateway("breth0_n1", "a-name-too-long-for-it_n1"),
			gateway("02:42:ac:12:00:01", "02:42:ac:12:00:02"), gateway("02:42:ac:12:00:01", "ff:ff:ff:ff:ff:ff"), gateway("02:42:ac:12:00:01", "01:00:5e:00:00:01"),
			gateway("02:42:ac:12:00:01", "00:00:00:00:00:00"), gateway("02:42:ac:12:00:01", "x"), gateway("172.18.0.1/16", "172.18.0.2/16"),
			gateway("172.18.0.1/16", "10.96.0.1/16"), gateway("172.18.0.1/16", "172.18.0.250/16"), gateway("172.18.0.1/16", "172.18.0.1/0"),
			gateway("172.18.0.250", "0.0.0.0"), gateway("172.18.0.250", "10.244.1.3"), gateway("fe80::1", "fe80::1%eth0"), gateway("fe80::1", "::ffff:1.2.3.4"),
			gateway(`"vlan-id":"0"`, `"vlan-id":"4095"`), gateway(`"vlan-id":"0"`, `"vlan-id":"-1"`), gateway(`"172.18.0.250"`, `""`),
			gateway(`"172.18.0.250"`, strings.TrimSuffix(strings.Repeat(`"172.18.0.250",`, 33), ",")),
			second("breth0_n1", mac, addr), second("breth1_n2", mac, addr), second("a-name-too-long-for-it_n1", mac, addr), second("", mac, addr),
			second(id, "ff:ff:ff:ff:ff:ff", addr), second(id, "", addr), second(id, mac, "10.244.1.3/24"), second(id, mac, "10.96.0.1/16"),
			second(id, mac, "172.18.0.2/16"), second(id, mac, "192.168.50.1/0"), second(id, mac, "::ffff:1.2.3.4/120"),
		}, nonsense...),
		kube.AnnotationChassisID: {"", "chassis-n2", "a b", "a\nb", `a"b`, "a,b", strings.Repeat("x", 254), "\x00", "é"},
		kube.AnnotationManagementMAC: {"", "x", "0a:58:0a:f4:01", "0a:58:0a:f4:01:02:03:04", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00",
			"0a:58:0a:f4:01:01", strings.Repeat("0", 200<<10)},
		kube.AnnotationGatewayMTU: {"", "yes", "FALSE", "0"},
	}
}

// Whatever invalid value is written, the effective values of the node and of the others stay, and the reported
// reason is short.
func TestBrokenValuesChangeNothing(t *testing.T) {
	for name, values := range broken() {
		for _, value := range values {
			w := begin(t, ByMaster(), 2)
			w.set(1, name, value, time.Hour)
			for i := 1; i <= 2; i++ {
				if want := kube.FormatNode(node(i)); !maps.Equal(w.effective(i), want) {
					t.Errorf("%s=%s: in force of n%d is %v", name, kube.Shorten(value), i, w.effective(i))
				}
			}
			if why := w.why(1, name); why == "" || len(why) > 300 {
				t.Errorf("%s=%s is refused because %q", name, kube.Shorten(value), why)
			}
			if name == kube.AnnotationNodeSubnets && w.why(1, name) == errOwned.Error() {
				t.Errorf("%s=%s is valid in itself", name, kube.Shorten(value))
			}
			w.set(1, name, kube.FormatNode(node(1))[name], 0)
			if len(w.refusals()) > 0 && kube.FormatNode(node(1))[name] != "" {
				t.Errorf("%s is put right and still refused: %v", name, w.refusals())
			}
		}
	}
}

// A new node without valid annotations has no effective ones, and takes nothing from existing nodes.
func TestANewcomerTakesNothing(t *testing.T) {
	w := begin(t, ByMaster(), 2)
	o := object(3, kube.FormatNode(node(1))) // all values of the first node
	w.add(o, nil)
	w.resolve(w.now, false)
	if got := w.effective(3); len(got) > 1 { // its management port may have the same MAC on its own switch
		t.Errorf("in force of the newcomer is %v", got)
	}
	if got := w.effective(1); !maps.Equal(got, kube.FormatNode(node(1))) {
		t.Errorf("the first node has %v", got)
	}
	// When the holder is deleted, the new node gets it.
	w.remove("n1")
	w.resolve(w.now, false)
	if got := w.effective(3)[kube.AnnotationChassisID]; got != "chassis-n1" {
		t.Errorf("the newcomer has chassis %q after the first node went", got)
	}
}

// At startup the database takes precedence over age.
func TestTheDatabaseDecidesAtTheStart(t *testing.T) {
	w := &world{now: start, resolver: newResolver(cluster, []string{kube.AnnotationNodeSubnets}, Settle)}
	claimed := kube.FormatNode(node(2))
	older := object(1, map[string]string{
		kube.AnnotationNodeSubnets: claimed[kube.AnnotationNodeSubnets], kube.AnnotationChassisID: claimed[kube.AnnotationChassisID], kube.AnnotationL3Gateway: "{",
	})
	edited := object(2, map[string]string{kube.AnnotationNodeSubnets: `{"default":["10.244.9.0/24"]}`, kube.AnnotationChassisID: claimed[kube.AnnotationChassisID]})
	w.add(older, kube.FormatNode(node(1)))
	w.add(edited, kube.FormatNode(node(2)))
	w.resolve(w.now, true)
	for i := 1; i <= 2; i++ {
		for _, name := range []string{kube.AnnotationNodeSubnets, kube.AnnotationChassisID, kube.AnnotationL3Gateway} {
			if got, want := w.effective(i)[name], kube.FormatNode(node(i))[name]; got != want {
				t.Errorf("%s of n%d is %s, want %s", name, i, got, want)
			}
		}
	}
	if why := w.why(2, kube.AnnotationNodeSubnets); why != errOwned.Error() {
		t.Errorf("the edited subnet is refused because %q", why)
	}
}

// Annotations that this process writes change to what it has decided and to nothing else.
func TestOwnedValuesChangeByDecision(t *testing.T) {
	w := begin(t, ByMaster(), 1)
	other := `{"default":["10.244.77.0/24"]}`
	w.set(1, kube.AnnotationNodeSubnets, other, time.Hour)
	if got := w.effective(1)[kube.AnnotationNodeSubnets]; got == other {
		t.Error("an edited subnet is in force")
	}
	w.decide("uid1", map[string]*string{kube.AnnotationNodeSubnets: &other})
	w.resolve(w.now, false)
	if got := w.effective(1)[kube.AnnotationNodeSubnets]; got != other {
		t.Errorf("the decided subnet is not in force, but %s: %v", got, w.refusals())
	}
}

// TestReplaced: of an update, values of this process's annotations that do not take effect are reported, except for
// its own values, values that were there before, and annotations that others write.
func TestReplaced(t *testing.T) {
	w := begin(t, []string{kube.AnnotationNodeSubnets}, 2)
	before := w.objs["n1"]
	update := func(name, value string) map[string]refusal {
		after := before.DeepCopy()
		after.Annotations[name] = value
		return w.replaced(before, after)
	}
	foreign := kube.FormatNodeSubnets(prefixes("10.244.77.0/24"))
	want := map[string]refusal{kube.AnnotationNodeSubnets: {value: foreign, why: errOwned.Error()}}
	if got := update(kube.AnnotationNodeSubnets, foreign); !maps.Equal(got, want) {
		t.Errorf("a foreign subnet: %v, want %v", got, want)
	}
	if got := update(kube.AnnotationChassisID, "chassis-n2"); len(got) > 0 {
		t.Errorf("an annotation of the node: %v", got)
	}
	if got := update(kube.AnnotationNodeSubnets, before.Annotations[kube.AnnotationNodeSubnets]); len(got) > 0 {
		t.Errorf("no change: %v", got)
	}
	w.decide(before.UID, map[string]*string{kube.AnnotationNodeSubnets: &foreign})
	if got := update(kube.AnnotationNodeSubnets, foreign); len(got) > 0 {
		t.Errorf("what this process decided: %v", got)
	}
}

// What others write takes effect after it has been there for a while: the owner corrects foreign values before
// that.
func TestForeignValuesHaveToStay(t *testing.T) {
	w := begin(t, ByMaster(), 1)
	was := w.effective(1)[kube.AnnotationL3Gateway]
	next := strings.Replace(was, "172.18.0.250", "172.18.0.98", 1)
	w.set(1, kube.AnnotationL3Gateway, next, settleAgent-1)
	if w.effective(1)[kube.AnnotationL3Gateway] != was {
		t.Error("a value counts at once")
	}
	w.set(1, kube.AnnotationL3Gateway, was, 0)
	w.set(1, kube.AnnotationL3Gateway, next, settleAgent-1)
	if w.effective(1)[kube.AnnotationL3Gateway] != was {
		t.Error("a value that was gone meanwhile counts at once")
	}
	w.now = w.now.Add(1)
	if rest := w.resolve(w.now, false); rest != 0 || w.effective(1)[kube.AnnotationL3Gateway] != next {
		t.Errorf("a value does not count after a while: %v left", rest)
	}
	w.set(1, kube.AnnotationHostAddresses, "-", settleAgent)
	if got, ok := w.effective(1)[kube.AnnotationHostAddresses]; ok {
		t.Errorf("a value that is gone for long counts: %s", got)
	}
}

// A value with ten thousand addresses, and a thousand nodes, are resolved quickly.
func TestManyNodesAreQuick(t *testing.T) {
	w := begin(t, ByMaster(), 200)
	began := time.Now()
	w.set(7, kube.AnnotationHostAddresses, `["10.99.0.1/24"`+strings.Repeat(`,"10.99.0.1/24"`, 9999)+`]`, time.Hour)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("one refusal among 200 nodes took %v", took)
	}
}

// FuzzResolve: no value causes a panic, or changes what is effective for another node.
func FuzzResolve(f *testing.F) {
	names := kube.NodeAnnotations()
	for name, values := range broken() {
		for _, value := range values {
			if len(value) < 4<<10 {
				f.Add(uint8(slices.Index(names, name)), value)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, value string) {
		w := begin(t, nil, 2)
		w.set(1, names[int(which)%len(names)], value, time.Hour)
		if !maps.Equal(w.effective(2), kube.FormatNode(node(2))) {
			t.Errorf("the other node has %v", w.effective(2))
		}
		n := w.states["n1"].node
		for _, p := range n.Subnets {
			if !topology.ManagementAddr(p).IsValid() || p.Overlaps(node(2).Subnets[0]) {
				t.Errorf("subnet %s is in force", p)
			}
		}
	})
}
