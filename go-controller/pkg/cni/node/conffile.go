package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/statefile"
)

// confFile returns the network configuration of this node. Host ports need an executable
// that must be installed on the node: naming it if it is missing would prevent pods from
// starting.
func (s *Server) confFile() ([]byte, error) {
	_, err := os.Stat(filepath.Join(s.BinDir, cni.PortMap))
	switch {
	case errors.Is(err, os.ErrNotExist):
		klog.InfoS("Cannot map host ports to pods: the CNI executable is missing", "executable", cni.PortMap, "directory", s.BinDir)
	case err != nil:
		return nil, fmt.Errorf("look for the CNI executable %s: %w", cni.PortMap, err)
	}
	return cni.ConfFile(s.Plugin, s.Socket, err == nil), nil
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
