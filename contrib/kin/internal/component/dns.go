package component

import (
	"bytes"
	_ "embed"
	"fmt"
	"net/netip"
	"text/template"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
)

// DNSDeployment is the Deployment of the name server, in DNSNamespace.
const (
	DNSDeployment = "coredns"
	DNSNamespace  = "kube-system"
)

// clusterDomain is the suffix of all names of the cluster.
const clusterDomain = "cluster.local"

//go:embed dns.yaml
var dnsManifest string

// DNSAddresses returns the name server's addresses, one per family: the tenth of the Service range,
// as usual.
func DNSAddresses(c config.Cluster) []netip.Addr {
	var list []netip.Addr
	for _, subnet := range c.ServiceSubnets() {
		list = append(list, plan.Host(subnet, 10).Addr())
	}
	return list
}

// DNS returns the manifest of the name server.
func DNS(c config.Cluster) ([]byte, error) {
	parsed, err := template.New("dns.yaml").Parse(dnsManifest)
	if err != nil {
		return nil, fmt.Errorf("read manifest of the name server: %w", err)
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, map[string]any{"Domain": clusterDomain, "Image": CoreDNSImage, "Addresses": DNSAddresses(c)})
	if err != nil {
		return nil, fmt.Errorf("write manifest of the name server: %w", err)
	}
	return text.Bytes(), nil
}
