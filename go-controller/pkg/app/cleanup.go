package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	cninode "github.com/ovnkube/ovnkube/go-controller/pkg/cni/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	gatewaynode "github.com/ovnkube/ovnkube/go-controller/pkg/gateway/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/addr"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iprule"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/snatguard"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
)

// cleanupNode restores the host of node name to its original state. It continues after failures, so
// that everything that can be removed is removed, and can be repeated.
func cleanupNode(ctx context.Context, cfg config.Config, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return cleanHost(ctx, cfg, name, ovs.New(ctx, ovs.DefaultEndpoint),
		filepath.Dir(stateFile), filepath.Dir(masterDir), filepath.Join(cfg.CNI.BinDir, cfg.CNI.Plugin))
}

// cleanHost removes files last: they record what has to be restored.
func cleanHost(ctx context.Context, cfg config.Config, name string, switches ovs.Client, files ...string) error {
	gateway := gatewaynode.Cleaner{OVS: switches, ControllerIDs: config.OVNControllerIDNames(), Node: name, StateFile: stateFile, Release: releaseFlows}
	var errs []error
	var unknown *unknownRecord
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"network configuration and pods", func(ctx context.Context) error { return cninode.Cleanup(ctx, cfg.CNI.ConfDir, switches) }},
		{"iptables chains", iptables.Cleanup},
		{"ip rules", iprule.NewSet().Sweep}, // an empty set deletes everything that we own
		{"routes", route.NewSet().Sweep},
		{"egress addresses, annotations and labels", func(ctx context.Context) (err error) {
			unknown, err = cleanupRecord(ctx, cfg, name)
			return err
		}},
		{"bridges, ports and addresses", gateway.Cleanup},
		{"the guard", func(context.Context) error { return snatguard.Remove() }},
	} {
		if err := step.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", step.what, err))
			continue
		}
		klog.InfoS("Removed", "what", step.what, "node", name)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, path := range files {
		errs = append(errs, os.RemoveAll(path))
	}
	if unknown != nil {
		errs = append(errs, unknown.report())
	}
	return errors.Join(errs...)
}

// unknownRecord is a record of egress addresses that does not exist or cannot be read.
type unknownRecord struct {
	why    string
	advice string // what to try before addresses are removed by hand
}

// report returns an error with the addresses that may be egress addresses, if there are any.
func (u unknownRecord) report() error {
	addresses, err := addr.Single()
	if err != nil || len(addresses) == 0 {
		return err
	}
	return fmt.Errorf("%s, so it is not known which addresses were its egress addresses. All else was removed. "+
		"%s remove those of these addresses that are not the host's own; if none is left, the clean-up is complete: %s", u.why, u.advice, strings.Join(addresses, ", "))
}

// cleanupTimeout is how long cleanup waits for the API server, the only one that knows the egress
// addresses on the host's links.
const cleanupTimeout = 10 * time.Second

// cleanupRecord removes the recorded egress addresses from the host's links, and from the Node
// object everything that masters and the node have written to it. It returns why the record is not known, or nil.
func cleanupRecord(ctx context.Context, cfg config.Config, name string) (*unknownRecord, error) {
	cs, err := Kube(cfg.Kubernetes)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	node, err := cs.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		klog.InfoS("The Node does not exist, and with it the record of egress addresses", "node", name)
		return &unknownRecord{why: fmt.Sprintf("node %s does not exist", name),
			advice: "If this host has another name, repeat the command with that; if not,"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	remove := kube.Unpublish(node)
	unknown, err := cleanupAddresses(ctx, node, remove)
	if err != nil {
		return nil, err
	}
	if err := kube.PatchNode(ctx, cs, node, remove); err != nil {
		return nil, err
	}
	return unknown, kube.RemoveNodeCondition(ctx, cs, node, corev1.NodeNetworkUnavailable,
		network.ReasonReady, network.ReasonNoSubnet, network.ReasonNoJoinAddress, network.ReasonRefused, network.ReasonFailing)
}

// cleanupAddresses removes the recorded egress addresses from the host's links. An unreadable record is
// not removed from the Node as long as addresses may be left: the command would succeed when it is repeated.
func cleanupAddresses(ctx context.Context, node *corev1.Node, remove kube.Metadata) (*unknownRecord, error) {
	addrs, unreadable := kube.EgressIPAddresses(node)
	if unreadable == nil {
		return nil, addr.NewSet(addr.New(func() []netip.Addr { return addrs })).Sweep(ctx)
	}
	left, err := addr.Single()
	if len(left) > 0 {
		delete(remove.Annotations, kube.AnnotationEgressIPAddresses)
	}
	return &unknownRecord{why: unreadable.Error(), advice: "Correct the annotation and repeat the command, or"}, err
}
