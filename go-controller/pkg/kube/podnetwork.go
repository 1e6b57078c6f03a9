package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// podNetwork is the JSON shape of one network in pod-networks. The singular
// fields repeat the only address of a single-stack pod for older readers.
type podNetwork struct {
	Addrs    []netip.Prefix `json:"ip_addresses"`
	MAC      string         `json:"mac_address"`
	Gateways []netip.Addr   `json:"gateway_ips,omitempty"`
	Addr     *netip.Prefix  `json:"ip_address,omitempty"`
	Gateway  *netip.Addr    `json:"gateway_ip,omitempty"`
}

// FormatPodNetwork encodes pod-networks.
func FormatPodNetwork(p topology.PodNetwork) string {
	w := podNetwork{Addrs: p.Addrs, MAC: p.MAC, Gateways: p.Gateways}
	if len(p.Addrs) == 1 {
		w.Addr = &p.Addrs[0]
		if len(p.Gateways) == 1 {
			w.Gateway = &p.Gateways[0]
		}
	}
	return mustJSON(map[string]podNetwork{defaultNetwork: w})
}

// PodNetwork decodes pod-networks. It returns false if the pod does not have the
// annotation, and an error that names pod and value if the value is not one that a
// master writes: one address per family, of the kind that pods can have.
//
// Users who may edit the pod can write anything here: the value comes from the master
// only if the pod's port in the database matches it.
func PodNetwork(p *corev1.Pod) (topology.PodNetwork, bool, error) {
	value, ok := p.Annotations[AnnotationPodNetworks]
	if !ok {
		return topology.PodNetwork{}, false, nil
	}
	network, err := parsePodNetwork(value)
	if err != nil {
		return topology.PodNetwork{}, false, fmt.Errorf("parse annotation %s of pod %s, value %q: %s",
			AnnotationPodNetworks, PodKey(p), excerpt(value), excerpt(err.Error()))
	}
	return network, true, nil
}

// excerpt returns the beginning of a text, which may be as long as an
// annotation can be, shortened to fit an Event.
func excerpt(text string) string {
	const most = 256
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}

func parsePodNetwork(value string) (topology.PodNetwork, error) {
	var networks map[string]podNetwork
	if err := json.Unmarshal([]byte(value), &networks); err != nil {
		return topology.PodNetwork{}, err
	}
	w, ok := networks[defaultNetwork]
	if !ok {
		return topology.PodNetwork{}, fmt.Errorf("has no %q network", defaultNetwork)
	}
	if w.Addr != nil {
		if len(w.Addrs) == 0 {
			w.Addrs = []netip.Prefix{*w.Addr}
		} else if !slices.Equal(w.Addrs, []netip.Prefix{*w.Addr}) {
			return topology.PodNetwork{}, errors.New("ip_address is not what ip_addresses has")
		}
	}
	if w.Gateway != nil {
		if len(w.Gateways) == 0 {
			w.Gateways = []netip.Addr{*w.Gateway}
		} else if !slices.Equal(w.Gateways, []netip.Addr{*w.Gateway}) {
			return topology.PodNetwork{}, errors.New("gateway_ip is not what gateway_ips has")
		}
	}
	network := topology.PodNetwork{MAC: w.MAC, Addrs: w.Addrs, Gateways: w.Gateways}
	return network, checkPodNetwork(network)
}

// checkPodNetwork returns an error for a network that no pod can have.
func checkPodNetwork(n topology.PodNetwork) error {
	if len(n.Addrs) == 0 {
		return errors.New("has no address")
	}
	families := map[topology.Family]bool{}
	for _, p := range n.Addrs {
		f := topology.FamilyOf(p.Addr())
		switch {
		case !p.IsValid() || !topology.IsUnicast(p.Addr()):
			return fmt.Errorf("ip_addresses: %q is not an address of a pod", p)
		case p.Bits() == 0 || p.IsSingleIP():
			return fmt.Errorf("ip_addresses: %q does not have the length of a node's subnet", p)
		case families[f]:
			return fmt.Errorf("ip_addresses: %s is a second %s address", p, f)
		}
		families[f] = true
	}
	gateways := map[topology.Family]bool{}
	for _, a := range n.Gateways {
		f := topology.FamilyOf(a)
		switch {
		case !topology.IsUnicast(a):
			return fmt.Errorf("gateway_ips: %q is not an address of a router", a)
		case !families[f]:
			return fmt.Errorf("gateway_ips: %s is of a family that the pod has no address of", a)
		case gateways[f]:
			return fmt.Errorf("gateway_ips: %s is a second %s address", a, f)
		}
		gateways[f] = true
	}
	if !topology.IsMAC(n.MAC) {
		return fmt.Errorf("mac_address: %q is not a MAC address of an interface", n.MAC)
	}
	return nil
}
