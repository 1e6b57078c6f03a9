package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/machine"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
)

// Store is the directory of all clusters.
type Store string

// Record is the stored description of a cluster.
type Record struct {
	Config config.Cluster `json:"config"`
	Paths  Paths          `json:"paths"`
	// Ovnkube says whether the cluster has its network.
	Ovnkube bool `json:"ovnkube"`
	// Install is how ovnkube was installed.
	Install string `json:"install,omitempty"`
	// Port is the API server's port on the loopback address of this machine.
	Port int `json:"port"`
}

// Paths are where a cluster's programs come from.
type Paths struct {
	Artifacts string `json:"artifacts"`
	// OvnkubeBin has ovnkube and ovn-k8s-cni-overlay.
	OvnkubeBin string `json:"ovnkubeBin"`
}

// Cluster is a cluster that exists, at least in part.
type Cluster struct {
	store Store
	name  string
	Record
}

const (
	recordFile  = "cluster.json"
	machinesDir = "machines"
	pkiDir      = "pki"
	// WireName is the machine that is the wire.
	WireName = "wire"
	// mtu of everything on the wire, in bytes.
	mtu = 1500
)

// ErrNotFound means that there is no such cluster.
var ErrNotFound = errors.New("no such cluster")

// cluster returns the cluster of a name, whether it exists or not. All access to clusters goes
// through here, because an invalid name could refer to any directory.
func (s Store) cluster(name string) (*Cluster, error) {
	if err := config.CheckName("cluster", name); err != nil {
		return nil, err
	}
	return &Cluster{store: s, name: name}, nil
}

// Names lists the clusters, including incomplete ones.
func (s Store) Names() ([]string, error) {
	entries, err := os.ReadDir(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && config.CheckName("cluster", e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Open finds a cluster.
func (s Store) Open(name string) (*Cluster, error) {
	c, err := s.cluster(name)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(c.path(recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	if err != nil {
		return nil, fmt.Errorf("read cluster: %w", err)
	}
	if err := json.Unmarshal(text, &c.Record); err != nil {
		return nil, fmt.Errorf("read cluster %s: %w", name, err)
	}
	return c, nil
}

func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{string(c.store), c.name}, parts...)...)
}

func (c *Cluster) save() error {
	text, err := json.MarshalIndent(c.Record, "", "  ")
	if err != nil {
		return fmt.Errorf("encode cluster: %w", err)
	}
	if err := os.WriteFile(c.path(recordFile), text, 0o600); err != nil {
		return fmt.Errorf("write cluster: %w", err)
	}
	return nil
}

// lock keeps other kin commands from changing the cluster until the returned
// function is called or the process ends.
func (c *Cluster) lock() (func(), error) {
	dir, err := os.Open(c.path())
	if err != nil {
		return nil, fmt.Errorf("lock cluster: %w", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock cluster: %w", err)
	}
	return func() { dir.Close() }, nil
}

// cgroup returns the control group of all of the cluster's processes. Clusters with the same name in
// different state directories are different clusters.
func (c *Cluster) cgroup() string {
	sum := sha256.Sum256([]byte(c.store))
	return "kin-" + c.name + "-" + hex.EncodeToString(sum[:4])
}

// Machine returns the directory of a machine, whether it exists or not.
func (c *Cluster) Machine(name string) machine.Dir {
	return machine.Dir(c.path(machinesDir, name))
}

// Machines lists all machines: the wire, nodes and outside hosts.
func (c *Cluster) Machines() ([]string, error) {
	entries, err := os.ReadDir(c.path(machinesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Find returns the directory of a machine that exists.
func (c *Cluster) Find(name string) (machine.Dir, error) {
	names, err := c.Machines()
	if err != nil {
		return "", err
	}
	if !slices.Contains(names, name) {
		return "", fmt.Errorf("cluster %s has no machine %q", c.name, name)
	}
	return c.Machine(name), nil
}

// Nodes lists the cluster's nodes, the control plane first.
func (c *Cluster) Nodes() []plan.Node { return plan.Nodes(c.Config) }

func (c *Cluster) nodeNames() []string {
	var names []string
	for _, n := range c.Nodes() {
		names = append(names, n.Name)
	}
	return names
}

// node finds a node by name.
func (c *Cluster) node(name string) (plan.Node, error) {
	n, ok := plan.NodeNamed(c.Config, name)
	if !ok {
		return n, fmt.Errorf("cluster %s has no node %q", c.name, name)
	}
	return n, nil
}

// Kubeconfig returns the administrator's kubeconfig, for use on this machine.
func (c *Cluster) Kubeconfig() ([]byte, error) {
	text, err := os.ReadFile(c.KubeconfigPath())
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return text, nil
}

// KubeconfigPath returns the path of that file.
func (c *Cluster) KubeconfigPath() string { return c.path("kubeconfig") }
