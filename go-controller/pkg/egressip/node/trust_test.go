package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// TestRulesForNoAnnotation: whatever a selected pod claims about itself,
// the rules and the digest use only the address of its port.
func TestRulesForNoAnnotation(t *testing.T) {
	w := newWorld(t, secondary("10.10.10.5 "+self, "fd10::5 "+self))
	says := func(addrs string) string {
		return `{"default":{"ip_addresses":[` + addrs + `],"mac_address":"0a:58:0a:f4:02:04"}}`
	}
	w.pod("red", "honest", "10.244.1.3/24", "fd00:10:244:2::3/64")
	w.bare("red", "ghost", "ghost", says(`"10.244.2.4/24"`))
	w.bare("red", "node-address", "ghost", says(`"172.18.0.3/16"`))
	w.bare("red", "everybody", "ghost", says(`"0.0.0.0/0","::/0"`))
	w.bare("red", "zero", "ghost", says(`"",""`))
	w.bare("red", "mapped", "ghost", says(`"::ffff:10.244.2.5/120"`))
	w.bare("red", "broken", other, "{")
	// Its port belongs to an earlier pod of the same name.
	w.bare("red", "young", other, says(`"10.244.2.6/24"`))
	w.port("red", "young", "uid-old", "10.244.2.6/24")
	// Somebody has tampered with the southbound database.
	w.bare("red", "foreign", other, says(`"172.18.0.3/16"`))
	w.port("red", "foreign", "uid-foreign", "172.18.0.3/16")
	w.start()
	w.saysEventually("prod", self+" 10.10.10.5 fd10::5")
	check := func(own ...string) {
		t.Helper()
		var sources []string
		for rule := range w.ipRules.Objects() {
			if rule.Priority == 6000 {
				sources = append(sources, rule.Src.String())
			}
		}
		slices.Sort(sources)
		if !slices.Equal(sources, own) {
			t.Errorf("rules for %v, want %v", sources, own)
		}
		if got := strings.Count(w.dump(), "-j SNAT"); got != len(own) {
			t.Errorf("%d translations, want %d:\n%s", got, len(own), w.dump())
		}
	}
	check("10.244.1.3/32", "fd00:10:244:2::3/128")
	digest := egressip.Digest(parse("10.10.10.5", "fd10::5"), parse("10.244.1.3", "fd00:10:244:2::3"))
	w.eventually("the digest of the honest pod alone", func() bool { return w.get("prod").Status.Programmed[0].Digest == digest })

	w.port("red", "young", "uid-young", "10.244.2.7/24")
	w.eventually("the rule of a port that came", func() bool { return strings.Contains(w.dump(), "10.244.2.7/32") })
	w.port("red", "honest", "uid-honest")
	w.eventually("the rule of a port that went to go", func() bool { return !strings.Contains(w.dump(), "10.244.1.3/32") })
	check("10.244.2.7/32")
}

// TestAddressesAreNotKnown: while the addresses of pods are unknown, nothing is
// taken on secondary networks, and other EgressIPs are served; everything continues afterwards.
func TestAddressesAreNotKnown(t *testing.T) {
	portsTimeout = 10 * time.Millisecond
	t.Cleanup(func() { portsTimeout = 3 * time.Second })
	w := newWorld(t, secondary(), object("primary", []string{"172.18.0.33"}, nil))
	w.noPorts = errors.New("lost the connection to tcp:1.2.3.4:6642")
	w.pod("red", "web", "10.244.1.3/24")
	w.start()
	w.change("prod", func(e *v1.EgressIP) { give(e, "10.10.10.5 "+self) })
	w.change("primary", func(e *v1.EgressIP) { give(e, "172.18.0.33 "+self) })
	w.saysEventually("primary", self+" 172.18.0.33")
	if len(w.ipRules.Objects()) > 0 || len(w.get("prod").Status.Programmed) > 0 {
		t.Errorf("has\n%s", w.dump())
	}
	var know func()
	w.eventually("the question for addresses", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		know = w.know
		return know != nil
	})
	know()
	w.saysEventually("prod", self+" 10.10.10.5")
}

// TestPodsAreNotKnown: EgressIPs on secondary networks, which need the pods, do not keep all workers from the
// others while the pods cannot be listed.
func TestPodsAreNotKnown(t *testing.T) {
	portsTimeout = 10 * time.Millisecond
	t.Cleanup(func() { portsTimeout = 3 * time.Second })
	objs := []runtime.Object{object("zone", []string{"172.18.0.33"}, []string{"172.18.0.33 " + self})} // the last one
	for i := range workers {
		a := fmt.Sprintf("10.10.10.%d", i+10)
		objs = append(objs, object(fmt.Sprintf("secondary-%d", i), []string{a}, []string{a + " " + self}))
	}
	w := newWorld(t, objs...)
	begun, late := time.Now(), atomic.Bool{}
	w.kube.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if late.Store(time.Since(begun) > 10*time.Second); late.Load() || len(w.get("zone").Status.Programmed) > 0 {
			return false, nil, nil
		}
		return true, nil, errors.New("no answer")
	})
	w.start()
	w.saysEventually("secondary-0", self+" 10.10.10.10")
	if late.Load() {
		t.Error("an EgressIP that needs no pods waited for them")
	}
}

func parse(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}
