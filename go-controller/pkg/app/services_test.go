package app

import (
	"net/netip"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
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
	}
}
