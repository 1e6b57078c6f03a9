package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/statefile"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// confFile returns the network configuration of this node. Host ports need an executable
// that must be installed on the node: naming it if it is missing would prevent pods from
// starting.
func (s *Server) confFile() ([]byte, error) {
	_, err := os.Stat(filepath.Join(s.BinDir, cni.PortMap))
	switch {
	case errors.Is(err, os.ErrNotExist) && !s.noPortMap:
		klog.InfoS("Cannot map host ports to pods: the CNI executable is missing", "executable", cni.PortMap, "directory", s.BinDir)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("look for the CNI executable %s: %w", cni.PortMap, err)
	}
	s.noPortMap = err != nil
	return cni.ConfFile(s.Plugin, s.Socket, err == nil), nil
}

// announce maintains the configuration file once the node is ready.
func (s *Server) announce(ctx context.Context) {
	if !waits.Until(ctx, s.ready, waits.Wait{Part: part, For: "the network of the node, before the configuration for the runtime is written"}) {
		return
	}
	for ctx.Err() == nil {
		after := filesInterval
		if err := s.keepConf(); err != nil {
			klog.ErrorS(err, "Cannot write the CNI configuration, will retry")
			after = confRetry
		}
		select {
		case <-time.After(after):
		case <-ctx.Done():
		}
	}
}

// keepConf writes the configuration file if it is missing or has another content. It is left to the next server, which
// may be an updated one and have begun before this one has ended.
func (s *Server) keepConf() error {
	if s.succeeded() {
		return nil
	}
	content, err := s.confFile()
	if err != nil {
		return err
	}
	return writeConf(s.ConfDir, content)
}

// writeConf writes the network configuration atomically, as the runtime watches the
// directory. A file with the same content is left unchanged.
func writeConf(dir string, content []byte) error {
	path := filepath.Join(dir, cni.ConfFileName)
	// The runtime reads only names that end in .conf, .conflist or .json.
	changed, err := statefile.Write(path, content, 0o644)
	if err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	if changed {
		klog.V(2).InfoS("Wrote the CNI configuration", "file", path)
	}
	return remove(dir, cni.FormerConfFileName)
}

// removeConf removes the network configuration.
func removeConf(dir string) error {
	return errors.Join(remove(dir, cni.ConfFileName), remove(dir, cni.FormerConfFileName))
}

func remove(dir, name string) error {
	if err := statefile.Remove(filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("remove the CNI configuration: %w", err)
	}
	return nil
}
