package suite

import (
	"path/filepath"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// manifests checks that the API server would accept everything in dist. The namespace exists:
// ovnkube's lease is in it.
func (s *suite) manifests(t *testing.T) {
	for _, overlay := range []string{"ha", "local", "shared"} {
		t.Run(overlay, func(t *testing.T) {
			command := append(s.Kubectl(), "apply", "--dry-run=server", "-k", filepath.Join("..", "..", "..", "dist", "overlays", overlay))
			out, err := lab.Run(t.Context(), command...)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(out)
		})
	}
}
