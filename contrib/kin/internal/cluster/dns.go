package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/component"
)

// applyDNS installs the name server. Its pods start with the nodes.
func (c *Cluster) applyDNS(ctx context.Context) error {
	manifest, err := component.DNS(c.Config)
	if err != nil {
		return err
	}
	path := c.path("dns.yaml")
	if err := writeFile(path, manifest, 0o600); err != nil {
		return err
	}
	return c.apply(ctx, "--filename", path)
}

// awaitDNS waits until names can be resolved: a name server that is ready
// has reached the API server at its Service's address.
func (c *Cluster) awaitDNS(ctx context.Context, limit time.Duration, update func(string)) error {
	client, err := c.api()
	if err != nil {
		return err
	}
	return c.await(ctx, limit, c.nodeNames(), func() (bool, string) {
		ready, err := client.readyReplicas(ctx, component.DNSNamespace, component.DNSDeployment)
		if err != nil {
			return false, err.Error()
		}
		why := fmt.Sprintf("no pod of deployment %s in %s is ready", component.DNSDeployment, component.DNSNamespace)
		update(why)
		return ready > 0, why
	})
}
