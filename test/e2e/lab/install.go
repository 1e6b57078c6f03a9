package lab

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// CRDs returns the directory of the CustomResourceDefinitions; kin reads it from the same variable.
func (l *Lab) CRDs() string {
	if dir := os.Getenv("KIN_CRDS"); dir != "" {
		return dir
	}
	return filepath.Join(filepath.Dir(l.Kin.Program), "..", "..", "dist", "crds")
}

// Manifests returns the directory of the overlay that kin wrote for the cluster.
func (l *Lab) Manifests() string { return filepath.Join(filepath.Dir(l.Kubeconfig), "install") }

// Apply installs ovnkube as described in docs/install.md, and waits until the nodes are ready and
// DNS works.
func (l *Lab) Apply(ctx context.Context) error {
	for _, args := range [][]string{
		{"apply", "--filename", l.CRDs()},
		{"wait", "--for=condition=Established", "--timeout=1m", "--filename", l.CRDs()},
		{"apply", "--kustomize", l.Manifests()},
	} {
		if _, err := Run(ctx, append(l.Kubectl(), args...)...); err != nil {
			return err
		}
	}
	return Until(ctx, 3*time.Minute, "nodes and name servers", func(ctx context.Context) error {
		if _, err := Run(ctx, append(l.Kubectl(), "wait", "--for=condition=Ready", "--timeout=5s", "nodes", "--all")...); err != nil {
			return err
		}
		_, err := Run(ctx, append(l.Kubectl(), "--namespace=kube-system", "rollout", "status", "--timeout=5s", "deployment/coredns")...)
		return err
	})
}
