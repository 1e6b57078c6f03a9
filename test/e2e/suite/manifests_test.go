package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// manifests checks that the API server would accept everything in dist. The namespace exists:
// ovnkube's lease is in it.
func (s *suite) manifests(t *testing.T) {
	dist := filepath.Join("..", "..", "..", "dist")
	dirs := map[string]string{"combined": userOverlay(t, dist)}
	for _, overlay := range []string{"ha", "ha-local", "kin", "local", "shared"} {
		dirs[overlay] = filepath.Join(dist, "overlays", overlay)
	}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := append(s.Kubectl(), "apply", "--dry-run=server", "-k", dir)
			out, err := lab.Run(t.Context(), command...)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(out)
		})
	}
}

// userOverlay returns an overlay as users write it, with everything that can be combined with local gateway mode.
func userOverlay(t *testing.T, dist string) string {
	t.Helper()
	dir := t.TempDir()
	at, err := filepath.Abs(dist)
	if err != nil {
		t.Fatal(err)
	}
	if at, err = filepath.Rel(dir, at); err != nil { // an absolute path is refused
		t.Fatal(err)
	}
	text := fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%[1]s/overlays/local]
components: [%[1]s/components/ha, %[1]s/components/page]
`, at)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
