package suite

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// installedMetrics asks masters and nodes for metrics from the network: without TLS, without a token, with that of an account
// without permission, and with that of the account which has it.
func (s *suite) installedMetrics(t *testing.T) {
	stranger := strings.TrimSpace(s.kubectl(t, "create", "token", "default"))
	ports := map[string][]uint16{lab.ControlPlane: {9409, 9410}}
	for _, node := range nodes {
		if ports[node] == nil {
			ports[node] = []uint16{9410}
		}
	}
	for node, all := range ports {
		addresses, err := s.NodeAddresses(t.Context(), node)
		if err != nil || len(addresses) == 0 {
			t.Fatalf("addresses of %s: %v, %v", node, addresses, err)
		}
		for _, port := range all {
			at := netip.AddrPortFrom(addresses[0], port).String()
			for _, c := range []struct {
				refusal string
				args    []string
			}{
				{"400 Bad Request", []string{"http://" + at + "/metrics"}},
				{"401 Unauthorized", []string{"https://" + at + "/metrics"}},
				{"401 Unauthorized", []string{"https://" + at + "/readyz?verbose"}},
				{"403 Forbidden", []string{"-token", stranger, "https://" + at + "/metrics"}},
				{"403 Forbidden", []string{"-token", stranger, "https://" + at + "/readyz?verbose"}},
			} {
				out, err := s.Call(t.Context(), node, false, append([]string{"get"}, c.args...)...)
				if err == nil || !strings.Contains(out+err.Error(), c.refusal) || strings.Contains(out, "ovnkube_") {
					t.Errorf("%s of %s is answered %v %s, want %s", c.args[len(c.args)-1], node, err, out, c.refusal)
				}
			}
			if out, err := s.scrape(t.Context(), node, at); err != nil || !strings.Contains(out, "ovnkube_build_info{") {
				t.Errorf("metrics of %s at port %d: %v %s", node, port, err, out)
			}
		}
	}
}

// scrape returns the metrics of a node at an address and port. Those of the manifests are served over TLS, to an account that
// has permission.
func (s *suite) scrape(ctx context.Context, node, at string) (string, error) {
	if !s.installed {
		return s.Call(ctx, node, false, "get", "http://"+at+"/metrics")
	}
	token, err := s.System(ctx, "create", "token", "ovnkube-metrics")
	if err != nil {
		return "", err
	}
	return s.Call(ctx, node, false, "get", "-token", strings.TrimSpace(token), "https://"+at+"/metrics")
}
