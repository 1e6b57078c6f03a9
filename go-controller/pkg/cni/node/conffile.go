package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
)

// writeConf writes the network configuration, all of it at once: the runtime
// watches the directory. A file with the same content is left alone.
func writeConf(dir string, content []byte) error {
	path := filepath.Join(dir, cni.ConfFileName)
	have, err := os.ReadFile(path)
	if err == nil && bytes.Equal(have, content) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the CNI configuration directory: %w", err)
	}
	// The runtime looks at names that end in .conf only.
	temporary := path + ".new"
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("put the CNI configuration in place: %w", err)
	}
	klog.V(2).InfoS("Told the container runtime of the network", "file", path)
	return nil
}

// removeConf removes the network configuration.
func removeConf(dir string) error {
	err := os.Remove(filepath.Join(dir, cni.ConfFileName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the CNI configuration: %w", err)
	}
	return nil
}
