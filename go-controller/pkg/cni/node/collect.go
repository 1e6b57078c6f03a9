package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// keepCollecting removes the ports of dead sandboxes at startup and periodically, until ctx
// ends. It also repairs the kernel's neighbor entries.
func (s *Server) keepCollecting(ctx context.Context) {
	if !queue.Informed(ctx, "cni", s.pods.informer.HasSynced) {
		return
	}
	ticker := time.NewTicker(collectInterval)
	defer ticker.Stop()
	for {
		if err := panics.Catch("cni", func() error { return s.collect(ctx) }); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Ports of dead sandboxes could not all be removed, will retry")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// collect removes our ports whose sandbox or pod is gone. The veth pair is deleted with the
// sandbox's network namespace, so a port without link has no sandbox.
func (s *Server) collect(ctx context.Context) error {
	ours, err := s.ours(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range ours {
		if s.locks.busy(p.ExternalIDs[cni.IDSandbox]) {
			continue
		}
		dead, err := s.stale(ctx, p)
		if err == nil && !dead {
			err = s.ensureRecord(ctx, p)
		}
		if dead {
			klog.V(2).InfoS("Removing the port of a dead sandbox", "port", p.Name,
				"pod", p.ExternalIDs[ovs.IfaceID], "sandbox", p.ExternalIDs[cni.IDSandbox])
			err = s.remove(ctx, p.Name)
		}
		errs = append(errs, err)
	}
	s.keepNeighbors(ctx)
	return errors.Join(errs...)
}

// ours lists the ports that ADD created, including those that currently exist only as
// records.
func (s *Server) ours(ctx context.Context) ([]ovs.Port, error) {
	ports, err := s.ovs.Ports(ctx, topology.IntegrationBridge)
	if err != nil && !errors.Is(err, ovs.ErrNotFound) {
		return nil, err
	}
	ports = slices.DeleteFunc(ports, func(p ovs.Port) bool { return p.ExternalIDs[cni.IDSandbox] == "" })
	recorded, err := s.recorded()
	for _, r := range recorded {
		if !slices.ContainsFunc(ports, func(p ovs.Port) bool { return p.Name == r.Name }) {
			ports = append(ports, r)
		}
	}
	return ports, err
}

func (s *Server) stale(ctx context.Context, p ovs.Port) (bool, error) {
	exists, err := link.Exists(p.Name)
	if err != nil || !exists {
		return err == nil, err
	}
	if p.ExternalIDs[cni.IDStatic] != "" {
		return false, nil // its mirror pod may be absent; the kubelet deletes the sandbox with the pod
	}
	// Names of namespaces and pods contain no "_".
	namespace, name, ok := strings.Cut(p.ExternalIDs[ovs.IfaceID], "_")
	if !ok {
		return false, nil
	}
	return s.pods.gone(ctx, cni.Pod{Namespace: namespace, Name: name, UID: p.ExternalIDs[ovs.IfaceIDVersion]})
}

// gc is the specification's GC: it removes everything except the listed attachments.
func (s *Server) gc(ctx context.Context, r cni.Request) error {
	conf, err := cni.ParseConf(r.Config)
	if err != nil {
		return err
	}
	if conf.ValidAttachments == nil {
		return types.NewError(cni.CodeInvalid, "GC needs cni.dev/valid-attachments", "")
	}
	valid := map[string]bool{}
	for _, a := range conf.ValidAttachments {
		valid[cni.HostLink(a.ContainerID, a.IfName)] = true
	}
	ours, err := s.ours(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range ours {
		if !valid[p.Name] && !s.locks.busy(p.ExternalIDs[cni.IDSandbox]) {
			errs = append(errs, s.remove(ctx, p.Name))
		}
	}
	s.keepNeighbors(ctx)
	return errors.Join(errs...)
}

// Cleanup removes what the server has created on a host: the configuration file and the
// ports and links of pods. It can be repeated.
func Cleanup(ctx context.Context, confDir string, db ovs.Client) error {
	ctx, cancel := context.WithTimeout(ctx, otherDeadline)
	defer cancel()
	s := &Server{ovs: db, Config: Config{Socket: cni.DefaultSocket}}
	ours, err := s.ours(ctx)
	errs := []error{removeConf(confDir), err}
	for _, p := range ours {
		errs = append(errs, s.remove(ctx, p.Name))
	}
	return errors.Join(errs...)
}
