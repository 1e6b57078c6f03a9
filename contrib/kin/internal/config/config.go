package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// IP families a cluster can have.
const (
	FamilyDual = "dual"
	FamilyIPv4 = "ipv4"
	FamilyIPv6 = "ipv6"
)

// Gateway modes, as ovnkube names them.
const (
	GatewayShared = "shared"
	GatewayLocal  = "local"
)

// Datapaths of Open vSwitch that a cluster can have.
const (
	// DatapathAuto is the kernel's datapath if the kernel has one, otherwise userspace.
	DatapathAuto      = "auto"
	DatapathKernel    = "kernel"
	DatapathUserspace = "userspace"
)

// MaxNodes is how many nodes a cluster may have: the outside hosts' addresses
// conventionally begin at .100 of the node subnet.
const MaxNodes = 64

// Cluster is the kin configuration file.
type Cluster struct {
	// Name distinguishes clusters on one machine. Default "kin".
	Name string `json:"name,omitempty"`
	// Nodes is the number of nodes, including the control plane. Default 3.
	Nodes int `json:"nodes,omitempty"`
	// NodePrefix starts every node's name: PREFIX-control-plane,
	// PREFIX-worker, PREFIX-worker2. Default "ovn".
	NodePrefix string `json:"nodePrefix,omitempty"`
	// GatewayMode is ovnkube's gateway mode: shared (default) or local.
	GatewayMode string `json:"gatewayMode,omitempty"`
	// IPFamily is dual (default), ipv4 or ipv6.
	IPFamily string `json:"ipFamily,omitempty"`
	// Datapath is that of Open vSwitch: auto (default), kernel or userspace.
	// For an existing cluster it is not auto.
	Datapath string `json:"datapath,omitempty"`
	// CPUWeight is the cluster's share of CPU time under contention,
	// 1 to 10000, like the kernel's cpu.weight. Default 100.
	CPUWeight int `json:"cpuWeight,omitempty"`
	// APIServerPort is the port on the loopback address of the machine that
	// runs kin. Default: a free port.
	APIServerPort int `json:"apiServerPort,omitempty"`
	// Subnets are the address ranges, one per family.
	Subnets Subnets `json:"subnets,omitempty"`
	// Networks are networks besides the nodes' own.
	Networks []Network `json:"networks,omitempty"`
	// Ovnkube has additional arguments of ovnkube.
	Ovnkube Ovnkube `json:"ovnkube,omitempty"`
	// APIServer, ControllerManager, Scheduler and Kubelet have additional arguments
	// of the Kubernetes programs; the last occurrence of a flag applies.
	APIServer         APIServer `json:"apiServer,omitempty"`
	ControllerManager Program   `json:"controllerManager,omitempty"`
	Scheduler         Program   `json:"scheduler,omitempty"`
	Kubelet           Kubelet   `json:"kubelet,omitempty"`
}

// Subnets are a cluster's address ranges. A family that the cluster does not
// have is ignored.
type Subnets struct {
	// Nodes are the ranges of the wire: nodes, outside hosts and their gateway.
	Nodes []netip.Prefix `json:"nodes,omitempty"`
	// Pods are in ovnkube's notation, CIDR or CIDR/HOSTLEN.
	Pods []string `json:"pods,omitempty"`
	// Services are the ranges of cluster addresses.
	Services []netip.Prefix `json:"services,omitempty"`
}

// Ovnkube has extra arguments, which follow kin's own.
type Ovnkube struct {
	// Args are passed to every ovnkube.
	Args []string `json:"args,omitempty"`
	// MasterArgs are passed to the one that runs with --init-master.
	MasterArgs []string `json:"masterArgs,omitempty"`
	// NodeArgs are passed to those that run with --init-node.
	NodeArgs []string `json:"nodeArgs,omitempty"`
}

// Program has extra arguments of one program.
type Program struct {
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// APIServer has extra arguments of the API server, and its audit policy.
type APIServer struct {
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// AuditPolicy defines what is written to the audit log; empty for no log.
	AuditPolicy map[string]any `json:"auditPolicy,omitempty"`
}

// Kubelet has extra arguments and KubeletConfiguration fields of every kubelet.
type Kubelet struct {
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// Config is merged over kin's KubeletConfiguration, key by key.
	Config map[string]any `json:"config,omitempty"`
}

// Load reads a configuration file; an empty path is treated as an empty file. An unknown
// key is an error that names it. Defaults are not filled in.
func Load(path string) (Cluster, error) {
	var c Cluster
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read configuration: %w", err)
	}
	if c, err = Parse(text); err != nil {
		return c, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse decodes a configuration file strictly.
func Parse(text []byte) (Cluster, error) {
	var c Cluster
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return c, fmt.Errorf("read YAML: %w", err)
	}
	wrong, err := json.UnmarshalStrict(asJSON, &c, json.DisallowUnknownFields)
	if err != nil {
		// The user wrote YAML, so the error should not mention JSON.
		return c, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return c, errors.Join(wrong...)
}

var names = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)

// CheckName returns an error if a name of a cluster, a machine or a network is invalid: names
// are used for directories, control groups and hosts. what says what the name is for.
func CheckName(what, name string) error {
	if !names.MatchString(name) {
		return fmt.Errorf("%s: %q is not a name; use up to 40 lower-case letters, digits and dashes", what, name)
	}
	return nil
}

// Default fills in defaults and validates the result.
func (c Cluster) Default() (Cluster, error) {
	c.Name = cmp.Or(c.Name, "kin")
	c.NodePrefix = cmp.Or(c.NodePrefix, "ovn")
	c.GatewayMode = cmp.Or(c.GatewayMode, GatewayShared)
	c.IPFamily = cmp.Or(c.IPFamily, FamilyDual)
	c.Datapath = cmp.Or(c.Datapath, DatapathUserspace)
	c.Nodes = cmp.Or(c.Nodes, 3)
	c.CPUWeight = cmp.Or(c.CPUWeight, 100)
	if len(c.Subnets.Nodes) == 0 {
		c.Subnets.Nodes = prefixes("172.18.0.0/16", "fc00:f853:ccd:e793::/64")
	}
	if len(c.Subnets.Pods) == 0 {
		c.Subnets.Pods = []string{"10.244.0.0/16/24", "fd00:10:244::/48/64"}
	}
	if len(c.Subnets.Services) == 0 {
		c.Subnets.Services = prefixes("10.96.0.0/16", "fd00:10:96::/112")
	}
	return c, c.validate()
}

func (c Cluster) validate() error {
	if err := errors.Join(CheckName("name", c.Name), CheckName("nodePrefix", c.NodePrefix)); err != nil {
		return err
	}
	switch {
	case c.Nodes < 1 || c.Nodes > MaxNodes:
		return fmt.Errorf("nodes: %d is not between 1 and %d", c.Nodes, MaxNodes)
	case c.GatewayMode != GatewayShared && c.GatewayMode != GatewayLocal:
		return fmt.Errorf("gatewayMode: %q is neither %s nor %s", c.GatewayMode, GatewayShared, GatewayLocal)
	case c.Datapath != DatapathAuto && c.Datapath != DatapathKernel && c.Datapath != DatapathUserspace:
		return fmt.Errorf("datapath: %q is none of %s, %s, %s", c.Datapath, DatapathAuto, DatapathKernel, DatapathUserspace)
	case c.CPUWeight < 1 || c.CPUWeight > 10000:
		return fmt.Errorf("cpuWeight: %d is not between 1 and 10000", c.CPUWeight)
	case c.APIServerPort < 0 || c.APIServerPort > 65535:
		return fmt.Errorf("apiServerPort: %d is not a port", c.APIServerPort)
	}
	families, err := c.families()
	if err != nil {
		return err
	}
	pods, err := c.podPrefixes()
	if err != nil {
		return err
	}
	for _, is4 := range families {
		for key, list := range map[string][]netip.Prefix{
			"subnets.nodes": c.Subnets.Nodes, "subnets.pods": pods, "subnets.services": c.Subnets.Services,
		} {
			if _, err := pick(list, is4); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	if err := c.validateNetworks(); err != nil {
		return err
	}
	all := slices.Concat(c.Subnets.Nodes, pods, c.Subnets.Services)
	for _, n := range c.Networks {
		all = append(all, n.Subnets...)
	}
	return overlap(all)
}

// families lists, for each family the cluster has, whether it is IPv4.
func (c Cluster) families() ([]bool, error) {
	switch c.IPFamily {
	case FamilyDual:
		return []bool{true, false}, nil
	case FamilyIPv4:
		return []bool{true}, nil
	case FamilyIPv6:
		return []bool{false}, nil
	}
	return nil, fmt.Errorf("ipFamily: %q is none of %s, %s, %s", c.IPFamily, FamilyDual, FamilyIPv4, FamilyIPv6)
}

// Families reports which families a valid cluster has.
func (c Cluster) Families() (ipv4, ipv6 bool) {
	return c.IPFamily != FamilyIPv6, c.IPFamily != FamilyIPv4
}

// NodeSubnets returns the wire's ranges, one for each family the cluster has, IPv4
// first. Other lists of subnets have the same order.
func (c Cluster) NodeSubnets() []netip.Prefix { return c.chosen(c.Subnets.Nodes) }

// ServiceSubnets returns the ranges of cluster addresses.
func (c Cluster) ServiceSubnets() []netip.Prefix { return c.chosen(c.Subnets.Services) }

// PodSubnets returns the pods' ranges in ovnkube's notation.
func (c Cluster) PodSubnets() []string {
	var chosen []string
	families, _ := c.families()
	for _, is4 := range families {
		for _, text := range c.Subnets.Pods {
			if p, err := podPrefix(text); err == nil && p.Addr().Is4() == is4 {
				chosen = append(chosen, text)
			}
		}
	}
	return chosen
}

// PodRanges returns PodSubnets as plain prefixes.
func (c Cluster) PodRanges() []netip.Prefix {
	pods, _ := c.podPrefixes()
	return c.chosen(pods)
}

func (c Cluster) chosen(list []netip.Prefix) []netip.Prefix {
	var chosen []netip.Prefix
	families, _ := c.families()
	for _, is4 := range families {
		if p, err := pick(list, is4); err == nil {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

func (c Cluster) podPrefixes() ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range c.Subnets.Pods {
		p, err := podPrefix(text)
		if err != nil {
			return nil, fmt.Errorf("subnets.pods: %q is not CIDR or CIDR/HOSTLEN: %w", text, err)
		}
		list = append(list, p)
	}
	return list, nil
}

// podPrefix parses "10.244.0.0/16/24" and "10.244.0.0/16".
func podPrefix(text string) (netip.Prefix, error) {
	if strings.Count(text, "/") == 2 {
		text = text[:strings.LastIndexByte(text, '/')]
	}
	return netip.ParsePrefix(text)
}

func pick(list []netip.Prefix, is4 bool) (netip.Prefix, error) {
	family := map[bool]string{true: "IPv4", false: "IPv6"}[is4]
	var found []netip.Prefix
	for _, p := range list {
		if p.Addr().Is4() == is4 {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return netip.Prefix{}, fmt.Errorf("wants one %s range, has %d", family, len(found))
	}
	if found[0].Masked() != found[0] {
		return netip.Prefix{}, fmt.Errorf("%s has host bits; did you mean %s?", found[0], found[0].Masked())
	}
	return found[0], nil
}

func overlap(list []netip.Prefix) error {
	for i, a := range list {
		for _, b := range list[:i] {
			if a.Overlaps(b) {
				return fmt.Errorf("subnets: %s and %s overlap", b, a)
			}
		}
	}
	return nil
}

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}
