package metallb

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/walkthrough"
)

// walkthrough is the suite's, with addresses that MetalLB assigns and announces at layer 2.
func (c *cluster) walkthrough(t *testing.T) {
	c.apply(t, "layer2.yaml")
	if _, err := walkthrough.Run(t.Context(), c.Lab, layer2{c.Lab}, t.Output()); err != nil {
		t.Fatal(err)
	}
}

// layer2 is MetalLB as the provider of the walkthrough.
type layer2 struct{ *lab.Lab }

// Annotations requests an address from the pool.
func (layer2) Annotations() map[string]string {
	return map[string]string{"metallb.io/address-pool": "demo-pool"}
}

// Assign waits for the addresses and makes them on-link for the outside host.
func (p layer2) Assign(ctx context.Context, service string) ([]netip.Addr, error) {
	var ingress []netip.Addr
	err := lab.Until(ctx, patience, "MetalLB to assign addresses", func(ctx context.Context) error {
		svc, err := p.Kube.CoreV1().Services(lab.Namespace).Get(ctx, service, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ingress = nil
		for _, i := range svc.Status.LoadBalancer.Ingress {
			a, err := netip.ParseAddr(i.IP)
			if err != nil {
				return err
			}
			ingress = append(ingress, a)
		}
		if len(ingress) != 2 {
			return fmt.Errorf("it has %v", ingress)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(ingress, netip.Addr.Compare)
	for _, a := range ingress {
		if _, err := p.Kin.Exec(ctx, lab.Outside, "ip", "route", "replace", a.String(), "dev", "eth0"); err != nil {
			return nil, err
		}
	}
	return ingress, nil
}

// Announce waits until the outside host resolves the addresses to the node.
func (p layer2) Announce(ctx context.Context, addresses []netip.Addr, node string) error {
	mac, err := p.Kin.Exec(ctx, node, "cat", "/sys/class/net/breth0/address")
	if err != nil {
		return err
	}
	for _, a := range addresses {
		err := lab.Until(ctx, patience, fmt.Sprintf("%s to be at %s", a, node), func(ctx context.Context) error {
			if _, err := p.Call(ctx, lab.Outside, false, "get", lab.URL(a, "/hostname")); err != nil {
				return err
			}
			out, err := p.Kin.Exec(ctx, lab.Outside, "ip", "neigh", "show", "to", a.String(), "dev", "eth0")
			if err == nil && !strings.Contains(out, "lladdr "+strings.TrimSpace(mac)) {
				err = fmt.Errorf("neighbour entry %q, want %s", strings.TrimSpace(out), strings.TrimSpace(mac))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
