package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/sandbox"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// undoTimeout bounds the cleanup after a failed ADD.
const undoTimeout = 10 * time.Second

// add attaches a pod. If it fails, it removes what it created.
func (s *Server) add(ctx context.Context, r cni.Request) (*current.Result, error) {
	who, err := cni.ParsePod(r.Args)
	if err != nil {
		return nil, err
	}
	if r.Netns == "" || r.IfName == "" {
		return nil, types.NewError(cni.CodeInvalid, "CNI_NETNS and CNI_IFNAME are needed", "")
	}
	ctx, stop := s.pods.whileThere(ctx, who)
	defer stop()
	pod, network, err := s.pods.network(ctx, who)
	if err != nil {
		return nil, err
	}
	result, err := s.attach(ctx, r, pod, network)
	if err == nil {
		err = s.awaitReady(ctx, who)
	}
	if err == nil {
		err = s.pods.egress(ctx, who)
	}
	if err == nil {
		err = s.pods.unchanged(ctx, who, pod, network)
	}
	if err == nil {
		return result, nil
	}
	// Whichever step failed, report why the context ended.
	if cause := context.Cause(ctx); errors.Is(cause, errPodGone) || errors.Is(cause, errSuperseded) {
		err = fmt.Errorf("attach pod %s: %w", who, cause)
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if e := s.del(undo, r); e != nil {
		klog.ErrorS(e, "Could not undo a failed attachment, DEL will do it", "pod", who, "sandbox", r.ContainerID)
	}
	return nil, err
}

// awaitReady waits for the node's rules: the runtime may find the configuration file of an
// earlier run, and a pod that starts before the rules exist would leave the cluster with
// the wrong source address.
func (s *Server) awaitReady(ctx context.Context, who cni.Pod) error {
	if !waits.Until(ctx, s.ready, s.wait(who, "the node's rules for egress traffic")) {
		return types.NewError(cni.CodeTryAgain, "network of the node is not ready: its rules for egress traffic are not in force yet",
			context.Cause(ctx).Error())
	}
	return nil
}

// wait describes what an ADD waits for. The error goes to the kubelet, which writes it to
// an Event of the pod.
func (s *Server) wait(who cni.Pod, what string) waits.Wait {
	return waits.Wait{Part: part, Object: who.String(), For: what, Limit: s.Deadline}
}

// attach creates the veth pair and the port, and waits for the port's flows.
func (s *Server) attach(ctx context.Context, r cni.Request, pod *corev1.Pod, network topology.PodNetwork) (*current.Result, error) {
	system, err := s.ovs.System(ctx)
	if err != nil {
		return nil, err
	}
	raw := ovs.InUserspace(system[ovs.DatapathTypeID])
	name := cni.HostLink(r.ContainerID, r.IfName)
	err = link.EnsureVeth(link.Veth{Host: name, Peer: r.IfName, PeerMAC: network.MAC, MTU: s.MTU, Netns: r.Netns})
	if err != nil {
		return nil, err
	}
	if raw {
		if err := link.Mute(name); err != nil {
			return nil, err
		}
	}
	err = sandbox.Configure(sandbox.Interface{
		Netns: r.Netns, Name: r.IfName, Addrs: network.Addrs, Gateways: network.Gateways, Raw: raw,
	})
	if err != nil {
		return nil, err
	}
	if err := s.addPort(ctx, r, name, pod, network); err != nil {
		return nil, err
	}
	port := topology.PodPort(pod.Namespace, pod.Name)
	wait := waits.Begin(s.wait(cni.Pod{Namespace: pod.Namespace, Name: pod.Name}, "ovn-controller to install the flows of logical port "+port))
	err = s.ovs.WaitInstalled(ctx, name, port)
	wait.End()
	if err != nil {
		return nil, types.NewError(cni.CodeTryAgain,
			fmt.Sprintf("interface %s of pod %s/%s has no flows: logical port %s must exist, and ovn-controller must run and reach the southbound database",
				name, pod.Namespace, pod.Name, port), err.Error())
	}
	s.keepNeighbors(ctx)
	mac, err := link.MAC(name)
	if err != nil {
		return nil, err
	}
	return cni.Result(r, network, mac, s.MTU), nil
}

// addPort adds the host's end to br-int. It first removes ports of earlier sandboxes of the
// same pod, as ovn-controller could not tell which one to use, and the records of those that
// are lost at the moment, which would be restored.
func (s *Server) addPort(ctx context.Context, r cni.Request, name string, pod *corev1.Pod, network topology.PodNetwork) error {
	ifaceID := topology.PodPort(pod.Namespace, pod.Name)
	ctx, done, err := s.ports.begin(ctx, ifaceID, false)
	if err != nil {
		return err
	}
	defer done()
	ports, err := s.ovs.Ports(ctx, topology.IntegrationBridge)
	if err != nil {
		return err
	}
	recorded, err := s.recorded()
	if err != nil {
		return err
	}
	for _, p := range append(ports, recorded...) {
		if p.ExternalIDs[ovs.IfaceID] == ifaceID && p.Name != name {
			klog.V(2).InfoS("Removing the port of an earlier sandbox", "pod", ifaceID, "port", p.Name,
				"sandbox", p.ExternalIDs[cni.IDSandbox])
			if err := errors.Join(s.forgetPort(p.Name), s.ovs.DeletePort(ctx, topology.IntegrationBridge, p.Name)); err != nil {
				return err
			}
		}
	}
	ids := cni.PortIDs(r, network)
	ids[ovs.IfaceID], ids[ovs.IfaceIDVersion] = ifaceID, string(kube.PodUID(pod))
	if kube.IsMirror(pod) {
		ids[cni.IDStatic] = "true"
	}
	port := ovs.Port{Bridge: topology.IntegrationBridge, Name: name, ExternalIDs: ids}
	if err := s.recordPort(port); err != nil {
		return err
	}
	return s.ovs.EnsurePort(ctx, port)
}

// del detaches a sandbox. It is not an error if nothing is attached.
func (s *Server) del(ctx context.Context, r cni.Request) error {
	err := s.remove(ctx, cni.HostLink(r.ContainerID, r.IfName))
	s.keepNeighbors(ctx)
	return err
}

func (s *Server) remove(ctx context.Context, name string) error {
	return errors.Join(
		s.forgetPort(name),
		s.ovs.DeletePort(ctx, topology.IntegrationBridge, name),
		link.Delete(name),
		link.Unmute(name),
	)
}
