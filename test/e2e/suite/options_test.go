package suite

import (
	"fmt"
	"os"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// TestOptions tests ovnkube with options that the other clusters do not have. They are independent
// of each other, so one cluster has them all.
func TestOptions(t *testing.T) {
	s := start(t, "shared", func(o *lab.Options) {
		o.Name = fmt.Sprintf("e2e-options-%d", os.Getpid())
		o.Config += "ovnkube:\n  args: [--disable-snat-multiple-gws, --egressip-node-healthcheck-port=9107, --exgw-interface=" + secondDevice + "]\n" +
			"  masterArgs: [--egress-audit-log=" + auditLog + "]\n"
	})
	t.Run("Untranslated", s.untranslated)
	t.Run("SecondUplink", func(t *testing.T) { newGatewayTest(t, s).secondUplink(t, true) })
	t.Run("HealthService", s.healthService)
	t.Run("History", s.history)
}
