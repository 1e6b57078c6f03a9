package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/component"
)

// Ways to install ovnkube.
const (
	// InstallProcesses runs ovnkube and OVN as daemons of the nodes.
	InstallProcesses = "processes"
	// InstallManifests applies ovnkube's manifests, as users do.
	InstallManifests = "manifests"
)

// overlay is the directory of the overlay for kin, beside that of the manifests.
const overlay = "../overlays/kin"

// installOvnkube applies the manifests with this cluster's settings if ovnkube is installed
// from them. If ovnkube is not to run, it only writes them.
func (c *Cluster) installOvnkube(ctx context.Context, crds, manifests string, update func(string)) error {
	if c.Install != InstallManifests {
		update("with the nodes")
		return nil
	}
	dir := c.path("install")
	base, err := filepath.Rel(dir, filepath.Join(manifests, overlay))
	if err != nil {
		return fmt.Errorf("find the overlay for kin: %w", err)
	}
	text, err := c.kustomization(base)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory of manifests: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o600); err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	if !c.Ovnkube {
		update("left to you: kubectl apply -f " + crds + " and apply -k " + dir)
		return nil
	}
	return c.apply(ctx, "--kustomize", dir)
}

// kustomization renders what kin adds to an overlay: the settings of this cluster.
func (c *Cluster) kustomization(base string) ([]byte, error) {
	data := component.MastersDatabases(c.Nodes()[0])
	data["ovnkube.conf"] = component.OvnkubeConfig(c.Config, c.Nodes()[0])
	configMap, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": "ovnkube", "namespace": "ovn-kubernetes"}, "data": data,
	})
	if err != nil {
		return nil, fmt.Errorf("encode settings: %w", err)
	}
	patches := []any{map[string]any{"patch": string(configMap)}}
	extra := c.Config.Ovnkube
	for _, role := range []struct {
		kind, name string
		args       []string
	}{
		{"Deployment", "ovnkube-master", extra.MasterArgs},
		{"DaemonSet", "ovnkube-node", extra.NodeArgs},
	} {
		var operations []map[string]string
		for _, arg := range append(append([]string{}, extra.Args...), role.args...) {
			operations = append(operations, map[string]string{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": arg})
		}
		if operations == nil {
			continue
		}
		patch, err := json.Marshal(operations)
		if err != nil {
			return nil, fmt.Errorf("encode arguments: %w", err)
		}
		patches = append(patches, map[string]any{"patch": string(patch), "target": map[string]string{"kind": role.kind, "name": role.name}})
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{strings.TrimSuffix(base, "/")}, "patches": patches,
	})
	if err != nil {
		return nil, fmt.Errorf("encode manifests: %w", err)
	}
	return text, nil
}
