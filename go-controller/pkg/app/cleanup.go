package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	cninode "github.com/ovnkube/ovnkube/go-controller/pkg/cni/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	gatewaynode "github.com/ovnkube/ovnkube/go-controller/pkg/gateway/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iprule"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/snatguard"
)

// cleanupNode leaves the host of node name as it was found. It goes on after
// failures, so that what can be removed is, and can be repeated.
func cleanupNode(ctx context.Context, cfg config.Config, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return cleanHost(ctx, cfg, name, ovs.New(ctx, ovs.DefaultEndpoint))
}

func cleanHost(ctx context.Context, cfg config.Config, name string, switches ovs.Client) error {
	gateway := gatewaynode.Cleaner{OVS: switches, ControllerIDs: cfg.OVNControllerIDs(), StateFile: stateFile}
	var errs []error
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"network configuration and pods", func(ctx context.Context) error { return cninode.Cleanup(ctx, cfg.CNI.ConfDir, switches) }},
		{"iptables chains", iptables.Cleanup},
		{"ip rules", iprule.NewSet().Sweep}, // an empty set sweeps all that is ours
		{"routes", route.NewSet().Sweep},
		{"egress addresses", func(ctx context.Context) error { return cleanupEgressIPs(ctx, cfg, name) }},
		{"bridges, ports and addresses", gateway.Cleanup},
		{"the guard", func(context.Context) error { return snatguard.Remove() }},
	} {
		if err := step.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", step.what, err))
			continue
		}
		klog.InfoS("Removed", "what", step.what, "node", name)
	}
	return errors.Join(errs...)
}
