package plane

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/adopttest"
)

// Disown removes the ownership marks from the rows that another implementation has, too,
// and returns the number of these rows.
func (p *Plane) Disown(ctx context.Context) (int, error) {
	c, err := p.Dial(ctx, Northbound, nil)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	outcomes, err := c.Transact(ctx, Northbound, adopttest.Disown()...)
	n := 0
	for _, o := range outcomes {
		n += o.Count
	}
	return n, err
}

// Adopt runs "ovnkube adopt", which takes over the rows that it understands, and returns its output.
func (p *Plane) Adopt(ctx context.Context) (string, error) {
	text, err := exec.CommandContext(ctx, p.config.Ovnkube, append([]string{"adopt", "--yes"}, p.settings()...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ovnkube adopt: %w: %s", err, text)
	}
	return string(text), nil
}
