package app

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestConfiguredAPIServerIsReserved: masters and nodes know that the address at which they reach the API servers is theirs,
// whether or not the EndpointSlice lists it, as for a load balancer outside the cluster.
func TestConfiguredAPIServerIsReserved(t *testing.T) {
	for server, at := range map[string]string{"https://192.0.2.10:6443": "192.0.2.10:6443", "https://[2001:db8::10]:8443": "[2001:db8::10]:8443"} {
		env := clusterEnv(t)
		env.REST = &rest.Config{Host: server}
		env.APIServers = newAPIServers(env.Config, env.REST)
		go env.APIServers.RunWithContext(t.Context())
		env, err := fenced(env, "m1")
		if err != nil {
			t.Fatal(err)
		}
		core := kube.NewInformers(fakeapi.NewClientset())
		addresses, err := reservedAddresses(env, core, core.Core().V1().Nodes(), nil)
		if err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "the address is known", env.APIServers.HasSynced)
		want := netip.MustParseAddrPort(at)
		owners := addresses.Owners(want.Addr())
		if len(owners) != 1 || owners[0].Kind != reserved.APIServer || !slices.Equal(owners[0].Ports, []uint16{want.Port()}) {
			t.Errorf("%s: owners %+v", server, owners)
		}
		if hosts := addresses.Hosts(); !slices.Equal(hosts, []netip.Addr{want.Addr()}) {
			t.Errorf("%s: hosts %v", server, hosts)
		}
		if s, _, err := pageSettings(env)(t.Context(), nil, ""); err != nil || !slices.Equal(s.APIServers, []netip.AddrPort{want}) {
			t.Errorf("%s: on the page they are %v, %v", server, s.APIServers, err)
		}
	}
}

// TestProxyResolvesAPIServer: a process that reaches the API servers through a proxy may be unable to resolve their name, and
// does not wait for that.
func TestProxyResolvesAPIServer(t *testing.T) {
	through := func(text string) func(*http.Request) (*url.URL, error) {
		return func(*http.Request) (*url.URL, error) { return url.Parse(text) }
	}
	direct := func(*http.Request) (*url.URL, error) { return nil, nil }
	for _, c := range []struct {
		rc   rest.Config
		want bool
	}{
		{rest.Config{Host: "https://api.example.org:6443", Proxy: through("http://10.0.0.1:3128")}, true},
		{rest.Config{Host: "api.example.org", Proxy: through("http://10.0.0.1:3128")}, true},
		{rest.Config{Host: "https://api.example.org:6443", Proxy: direct}, false},
		{rest.Config{Host: "https://api.example.org:6443"}, false},
	} {
		if got := proxied(&c.rc); got != c.want {
			t.Errorf("%s: proxied %v, want %v", c.rc.Host, got, c.want)
		}
	}
	for _, answer := range []error{&net.DNSError{Err: "server misbehaving", IsTemporary: true}, &net.DNSError{Err: "i/o timeout", IsTimeout: true}} {
		informer := reservedsnapshot.NewAPIServers("https://api.example.org:6443", optional(func(context.Context, string, string) ([]netip.Addr, error) {
			return nil, answer
		}), reserved.Ranges{})
		go informer.RunWithContext(t.Context())
		eventually.True(t, "not to wait after: "+answer.Error(), informer.HasSynced)
	}
}
