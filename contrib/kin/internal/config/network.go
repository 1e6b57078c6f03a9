package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// Network is a network besides the nodes' own. Every node has a further interface on
// it: eth1 on the first one listed, eth2 on the second.
type Network struct {
	Name string `json:"name"`
	// Subnets are its ranges, at most one per family. A family that the cluster does
	// not have is ignored.
	Subnets []netip.Prefix `json:"subnets"`
}

// ParseNetwork parses NAME=CIDR or NAME=CIDR,CIDR.
func ParseNetwork(text string) (Network, error) {
	name, ranges, found := strings.Cut(text, "=")
	if !found {
		return Network{}, fmt.Errorf("%q is not NAME=CIDR or NAME=CIDR,CIDR", text)
	}
	n := Network{Name: name}
	for part := range strings.SplitSeq(ranges, ",") {
		subnet, err := netip.ParsePrefix(part)
		if err != nil {
			return Network{}, fmt.Errorf("network %s: %w", name, err)
		}
		n.Subnets = append(n.Subnets, subnet)
	}
	return n, nil
}

// NetworkSubnets returns a network's ranges in the families the cluster has, IPv4 first.
func (c Cluster) NetworkSubnets(n Network) []netip.Prefix { return c.chosen(n.Subnets) }

func (c Cluster) validateNetworks() error {
	seen := map[string]bool{}
	for _, n := range c.Networks {
		if err := CheckName("networks", n.Name); err != nil {
			return err
		}
		if seen[n.Name] {
			return fmt.Errorf("networks: there are two of the name %s", n.Name)
		}
		seen[n.Name] = true
		for _, p := range n.Subnets {
			if _, err := pick(n.Subnets, p.Addr().Is4()); err != nil {
				return fmt.Errorf("network %s: %w", n.Name, err)
			}
		}
		if len(c.NetworkSubnets(n)) == 0 {
			return fmt.Errorf("network %s: no range is of the cluster's families (%s)", n.Name, c.IPFamily)
		}
	}
	return nil
}
