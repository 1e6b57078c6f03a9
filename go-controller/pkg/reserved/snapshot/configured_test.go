package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

var (
	deadNameServers = &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	unknownName     = &net.DNSError{Err: "no such host", IsNotFound: true}
)

// TestAPIServerName: the addresses of the API server's host name are known as soon as a name server answers, also if the
// first one is dead in each attempt. What is known stays while there is no answer, and for a while if an answer lacks it.
// A name that does not exist stops nothing, since a proxy may resolve it.
func TestAPIServerName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const firstNameServer = 11 * time.Second
		start, failsFor := time.Now(), 10*time.Minute
		answer, failure := []string{"192.0.2.10", "2001:db8::10"}, error(nil)
		c := newConfigured("https://api.example.org:6443", func(ctx context.Context, _, _ string) (addrs []netip.Addr, err error) {
			select {
			case <-ctx.Done():
				return nil, &net.DNSError{Err: "i/o timeout", IsTimeout: true}
			case <-time.After(firstNameServer):
			}
			if time.Since(start) < failsFor {
				return nil, deadNameServers
			}
			for _, a := range answer {
				addrs = append(addrs, netip.MustParseAddr(a))
			}
			return addrs, failure
		}, reserved.Ranges{})
		expect := func(step string, want ...string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			list, err := c.list(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatalf("%s: %v", step, err)
			}
			slice := list.(*discoveryv1.EndpointSliceList).Items[0]
			if got := fmt.Sprint(APIServersIn([]*discoveryv1.EndpointSlice{&slice})); got != fmt.Sprint(want) {
				t.Errorf("%s: API servers %s, want %s", step, got, want)
			}
		}
		expect("first answer", "192.0.2.10", "2001:db8::10")
		if took := time.Since(start); took < failsFor || took > failsFor+2*(firstNameServer+lookupRetry) {
			t.Errorf("known after %s, want %s", took, failsFor)
		}
		failure = deadNameServers
		for range 2 * forgetAfter {
			expect("no answer", "192.0.2.10", "2001:db8::10")
		}
		answer, failure = []string{"192.0.2.11"}, nil
		for range forgetAfter - 1 {
			expect("moved", "192.0.2.10", "192.0.2.11", "2001:db8::10")
		}
		expect("moved long ago", "192.0.2.11")
		failure = unknownName
		expect("no such name", "192.0.2.11")
		c.missed = map[netip.AddrPort]int{}
		expect("no such name from the beginning")
	})
}

// TestAPIServerMoves: nobody works before the addresses of the API server's name are known, since a Service could take them;
// owners are reconciled when the name gets other addresses.
func TestAPIServerMoves(t *testing.T) {
	var lookups atomic.Int32
	answering, moved := make(chan struct{}), make(chan struct{})
	c := newConfigured("https://api.example.org:6443", func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		select {
		case <-answering:
		default:
			lookups.Add(1)
			return nil, deadNameServers
		}
		select {
		case <-moved:
			return []netip.Addr{netip.MustParseAddr("192.0.2.11")}, nil
		default:
			return []netip.Addr{netip.MustParseAddr("192.0.2.10")}, nil
		}
	}, reserved.Ranges{})
	c.interval = time.Millisecond
	core := kube.NewInformers(fakeapi.NewClientset())
	in := Informers{Nodes: core.Core().V1().Nodes(), EndpointSlices: core.Discovery().V1().EndpointSlices(), APIServers: c.informer()}
	a, err := New(reserved.Ranges{}, in)
	if err != nil {
		t.Fatal(err)
	}
	reconciled := make(chan string, 10)
	q := queue.New("test", func(_ context.Context, key string) error {
		reconciled <- fmt.Sprint(key, " ", len(a.Owners(netip.MustParseAddr(key))))
		return nil
	})
	if err := a.Watch(q, func(addrs []netip.Addr) (keys []string) {
		for _, addr := range addrs {
			keys = append(keys, addr.String())
		}
		return keys
	}); err != nil {
		t.Fatal(err)
	}
	go in.APIServers.RunWithContext(t.Context())
	core.Start(t.Context().Done())
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- q.Run(ctx, 1) }()
	eventually.True(t, "a second look-up", func() bool { return lookups.Load() > 1 })
	if in.APIServers.HasSynced() {
		t.Error("synced without an answer")
	}
	for _, step := range []struct {
		happens chan struct{}
		want    string
	}{{answering, "192.0.2.10 1"}, {moved, "192.0.2.11 1"}} {
		close(step.happens)
		if got := eventually.Receive(t, "a key", reconciled); got != step.want {
			t.Errorf("reconciled %q, want %q", got, step.want)
		}
	}
	stop()
	if err := eventually.Receive(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

func TestAPIServersAt(t *testing.T) {
	names := func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if host != "api.example.org" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("::ffff:192.0.2.10"), netip.MustParseAddr("2001:db8::10")}, nil
	}
	for server, want := range map[string]string{
		"":                              "[] <nil>",
		"https://192.0.2.10:6443":       "[192.0.2.10:6443] <nil>",
		"https://[2001:db8::10]:6443/x": "[[2001:db8::10]:6443] <nil>",
		"https://192.0.2.10":            "[192.0.2.10:443] <nil>",
		"http://192.0.2.10":             "[192.0.2.10:80] <nil>",
		"192.0.2.10:6443":               "[192.0.2.10:6443] <nil>",
		"2001:db8::10":                  "[] parse the URL of the API server: ",
		"https://api.example.org:6443":  "[192.0.2.10:6443 [2001:db8::10]:6443] <nil>",
		"https://other.example.org":     "[] resolve the host name of the API server: no such host",
	} {
		at, err := APIServersAt(t.Context(), server, names)
		if got := fmt.Sprint(at, " ", err); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", server, got, want)
		}
	}
	if at, err := APIServersAt(t.Context(), "https://api.example.org", nil); len(at) != 0 || err != nil {
		t.Errorf("without a resolver: %v, %v", at, err)
	}
}
