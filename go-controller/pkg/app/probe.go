package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/conntrack"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/podprobe"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/trace"
)

// probeTimeout is how long to wait for the answer to a probe: the time in which the kernel
// retransmits the first packet of a connection once.
const probeTimeout = 3 * time.Second

// sendProbe sends a probe as a pod of this node would.
func (n *node) sendProbe(ctx context.Context, pod *corev1.Pod, source netip.Addr, q trace.Question) (trace.Probed, error) {
	ports, err := n.switches.Ports(ctx, topology.IntegrationBridge)
	if err != nil {
		return trace.Probed{}, fmt.Errorf("find the port of pod %s: %w", q.Pod, err)
	}
	netns, err := netnsOf(pod, ports)
	if err != nil {
		return trace.Probed{}, err
	}
	r, err := podprobe.Send(ctx, podprobe.Probe{Netns: netns, Source: source, To: q.To, UDP: q.Protocol == trace.UDP, Timeout: probeTimeout})
	if err != nil {
		return trace.Probed{}, err
	}
	return probedOf(r, q.Protocol), nil
}

// netnsOf returns the network namespace for which a port was created.
func netnsOf(pod *corev1.Pod, ports []ovs.Port) (string, error) {
	i := slices.IndexFunc(ports, func(p ovs.Port) bool {
		return p.ExternalIDs[ovs.IfaceID] == topology.PodPort(pod.Namespace, pod.Name) && p.ExternalIDs[ovs.IfaceIDVersion] == string(kube.PodUID(pod))
	})
	if i < 0 || ports[i].ExternalIDs[cni.IDNetns] == "" {
		return "", fmt.Errorf("pod %s/%s is not attached to the network of this node", pod.Namespace, pod.Name)
	}
	return ports[i].ExternalIDs[cni.IDNetns], nil
}

// probedOf converts the result of a probe.
func probedOf(r podprobe.Result, protocol string) trace.Probed {
	out := trace.Probed{From: r.From, Milliseconds: r.Took.Milliseconds()}
	switch {
	case r.Err == nil && protocol == trace.UDP:
		out.Outcome = trace.ProbeAnswered
	case r.Err == nil:
		out.Outcome = trace.ProbeConnected
	case errors.Is(r.Err, syscall.ECONNREFUSED):
		out.Outcome = trace.ProbeRefused
	case errors.Is(r.Err, os.ErrDeadlineExceeded), errors.Is(r.Err, syscall.ETIMEDOUT):
		out.Outcome = trace.ProbeUnanswered
	default:
		out.Outcome, out.Why = trace.ProbeFailed, r.Err.Error()
	}
	return out
}

// ipProtocols are protocol numbers in IP headers.
var ipProtocols = map[string]uint8{trace.TCP: syscall.IPPROTO_TCP, trace.UDP: syscall.IPPROTO_UDP}

// connectionTrace finds this node's conntrack entries of a connection.
func connectionTrace(ctx context.Context, q trace.Question) (trace.Connection, error) {
	all, err := conntrack.Follow(ctx, conntrack.DefaultRunDir, conntrack.Connection{
		Protocol: ipProtocols[q.Protocol], From: netip.AddrPortFrom(q.Source, q.Port), To: q.To,
	})
	var out trace.Connection
	for _, e := range all {
		table := trace.TableSwitch
		if e.Kernel {
			table = trace.TableKernel
		}
		out.Entries = append(out.Entries, trace.Entry{Table: table, Zone: e.Zone, From: e.From, Becomes: e.Becomes})
	}
	return out, err
}
