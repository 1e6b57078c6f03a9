package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/statefile"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	// recordsDir, in the directory of the socket, has a file for each port, so that the
	// ports of running pods can be restored if the Open vSwitch database loses them.
	recordsDir = "ports"
	recordEnd  = ".json"
	// restoreSettle is how long changes of interfaces are collected before checking for
	// lost ports, restoreRetry how soon to check again if a port could not be restored.
	restoreSettle = 100 * time.Millisecond
	restoreRetry  = time.Second
)

// recordedIDs are the external_ids of a port that ADD sets.
var recordedIDs = []string{
	ovs.IfaceID, ovs.IfaceIDVersion, cni.IDMAC, cni.IDAddrs, cni.IDSandbox, cni.IDNetns, cni.IDIfName, cni.IDStatic,
}

func (s *Server) recordPath(port string) string {
	return filepath.Join(filepath.Dir(s.Socket), recordsDir, port+recordEnd)
}

// recordPort records a port outside the Open vSwitch database.
func (s *Server) recordPort(p ovs.Port) error {
	ids := map[string]string{}
	for _, key := range recordedIDs {
		if v := p.ExternalIDs[key]; v != "" {
			ids[key] = v
		}
	}
	content, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("encode port %s: %w", p.Name, err)
	}
	if _, err := statefile.Write(s.recordPath(p.Name), content, 0o600); err != nil {
		return fmt.Errorf("record port %s: %w", p.Name, err)
	}
	return nil
}

// ensureRecord records a port that has no record, unless it has been removed meanwhile.
func (s *Server) ensureRecord(ctx context.Context, p ovs.Port) error {
	ctx, done, err := s.ports.begin(ctx, p.ExternalIDs[ovs.IfaceID], false)
	if err != nil {
		return err
	}
	defer done()
	if _, ok := s.readRecord(p.Name); ok {
		return nil
	}
	ports, err := s.ovs.Ports(ctx, topology.IntegrationBridge)
	if err != nil || !slices.ContainsFunc(ports, func(o ovs.Port) bool { return o.Name == p.Name }) {
		return err
	}
	return s.recordPort(p)
}

// forgetPort removes the record of a port. It is called before the port is deleted.
func (s *Server) forgetPort(name string) error { return statefile.Remove(s.recordPath(name)) }

// recorded returns the recorded ports, without records that cannot be read.
func (s *Server) recorded() ([]ovs.Port, error) {
	names, err := s.recordedNames()
	var out []ovs.Port
	for _, name := range names {
		if p, ok := s.readRecord(name); ok {
			out = append(out, p)
		}
	}
	return out, err
}

func (s *Server) recordedNames() ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(s.recordPath("")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the recorded ports: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), recordEnd); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

func (s *Server) readRecord(name string) (ovs.Port, bool) {
	p := ovs.Port{Bridge: topology.IntegrationBridge, Name: name}
	content, err := statefile.Read(s.recordPath(name))
	if err == nil && content != nil {
		err = json.Unmarshal(content, &p.ExternalIDs)
	}
	if err != nil {
		klog.ErrorS(err, "Record of a port cannot be read", "port", name)
	}
	return p, err == nil && p.ExternalIDs[cni.IDSandbox] != ""
}

// keepRestoring restores deleted ports of running pods until ctx ends.
func (s *Server) keepRestoring(ctx context.Context, wake <-chan struct{}) {
	for {
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
		for {
			select {
			case <-time.After(restoreSettle):
			case <-ctx.Done():
				return
			}
			err := panics.Catch("cni", func() error { return s.restore(ctx) })
			if err == nil || ctx.Err() != nil {
				break
			}
			klog.ErrorS(err, "Ports of pods that were lost could not all be restored, will retry")
			select {
			case <-time.After(restoreRetry):
			case <-ctx.Done():
				return
			}
		}
	}
}

// restore restores recorded ports that do not exist although their link does.
func (s *Server) restore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, otherDeadline)
	defer cancel()
	recorded, err := s.recordedNames()
	if err != nil || len(recorded) == 0 {
		return err
	}
	there, err := s.ovs.Ports(ctx, topology.IntegrationBridge)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range recorded {
		if !slices.ContainsFunc(there, func(o ovs.Port) bool { return o.Name == name }) {
			errs = append(errs, s.restorePort(ctx, name))
		}
	}
	return errors.Join(errs...)
}

func (s *Server) restorePort(ctx context.Context, name string) error {
	p, ok := s.readRecord(name)
	if !ok {
		return nil
	}
	sandbox := p.ExternalIDs[cni.IDSandbox]
	if s.locks.busy(sandbox) { // a DEL removes the record, an ADD may take a minute
		if exists, err := link.Exists(p.Name); err != nil || !exists {
			return err
		}
		return fmt.Errorf("port %s: there is a request for its sandbox", p.Name)
	}
	ctx, done, err := s.locks.begin(ctx, sandbox, false)
	if err != nil {
		return err
	}
	defer done()
	ctx, release, err := s.ports.begin(ctx, p.ExternalIDs[ovs.IfaceID], false)
	if err != nil {
		return err
	}
	defer release()
	if p, ok = s.readRecord(name); !ok {
		return nil // detached, or superseded by a later sandbox of the pod, meanwhile
	}
	// The veth pair is deleted with the sandbox: without it the port is not needed.
	exists, err := link.Exists(p.Name)
	if err != nil || !exists {
		return err
	}
	klog.InfoS("The port of a pod was lost, restoring it", "port", p.Name, "pod", p.ExternalIDs[ovs.IfaceID], "sandbox", sandbox)
	return s.ovs.EnsurePort(ctx, p)
}
