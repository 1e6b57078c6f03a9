package reader

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
)

// FromConfigMap reads the configuration file of the cluster.
func FromConfigMap(ctx context.Context, c kubernetes.Interface, namespace string) (explain.Settings, string, error) {
	otherwise := explain.Settings{EgressIP: true, EgressService: true, ExternalGateways: true, RangesUnknown: true}
	const taken = "all features are taken to be enabled, nothing is reserved but the pod subnets of the nodes and the addresses in the API, and disable-snat-multiple-gws, " +
		"external-gateway-namespaces and node-local-addresses are taken to be as without configuration"
	object, err := c.CoreV1().ConfigMaps(namespace).Get(ctx, configMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return otherwise, fmt.Sprintf("settings: ConfigMap %s/%s cannot be read (%s); %s", namespace, configMap, apierrors.ReasonForError(err), taken), nil
	case err != nil:
		return otherwise, "", fmt.Errorf("get configmap %s/%s: %w", namespace, configMap, err)
	}
	text, ok := object.Data[fileName]
	if !ok { // an empty one would mean that all features are disabled
		return otherwise, fmt.Sprintf("settings: ConfigMap %s/%s has no %s; %s", namespace, configMap, fileName, taken), nil
	}
	cfg, _, err := config.Load(config.Sources{File: &config.File{Name: fileName, Data: []byte(text)}})
	if err != nil {
		return otherwise, fmt.Sprintf("settings: %s of ConfigMap %s/%s is not valid (%v); %s", fileName, namespace, configMap, err, taken), nil
	}
	s := SettingsOf(cfg)
	return s, apiServerNote(cfg.Kubernetes, s), nil
}

// apiServerNote says that the settings do not give the addresses at which ovnkube reaches the API server, which the master
// reserves: a load balancer is not in the EndpointSlice. It is empty if they do.
func apiServerNote(k config.Kubernetes, s explain.Settings) string {
	by := "the environment of its pods"
	switch {
	case len(s.APIServers) > 0:
		return ""
	case k.Kubeconfig != "":
		by = "the kubeconfig " + k.Kubeconfig
	case k.APIServer != "":
		by = "the host name in " + k.APIServer
	}
	return fmt.Sprintf("settings: ovnkube finds the API server by %s; at which addresses is not known here, and those that are not in the EndpointSlice "+
		"default/kubernetes are taken for addresses that EgressIPs and EgressServices can use", by)
}

// SettingsOf returns the part of a configuration that the planners depend on.
func SettingsOf(cfg config.Config) explain.Settings {
	s := explain.Settings{
		EgressIP: cfg.Features.EgressIP, EgressService: cfg.Features.EgressService, ExternalGateways: cfg.Features.MultiExternalGateway,
		Pods: cfg.Default.ClusterPrefixes(), Services: cfg.Kubernetes.ServiceCIDRs, NodeLocal: cfg.Features.NodeLocalAddresses,
		HostPorts:              service.ConfiguredHostPorts(cfg.Default.EncapPort, cfg.Features.NodeHealthCheckPort),
		DisableSNATMultipleGWs: cfg.Gateway.DisableSNATMultipleGWs, GatewayNamespaces: cfg.Features.GatewayNamespaces,
	}
	if cfg.Kubernetes.Kubeconfig == "" { // a file of the nodes
		// Host names are not resolved: the nodes may have another resolver.
		s.APIServers, _ = reservedsnapshot.APIServersAt(context.Background(), cfg.Kubernetes.APIServer, nil) // validated
	}
	for _, f := range cfg.Families() {
		s.Join = append(s.Join, cfg.Gateway.JoinSubnet(f))
		s.Masquerade = append(s.Masquerade, cfg.Gateway.MasqueradeSubnet(f))
	}
	return s
}
