package ovntrace_test

import (
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
)

func TestTrace(t *testing.T) {
	o := ovntrace.Start(t)
	o.NB.Nbctl("ls-add", "ls",
		"--", "lsp-add", "ls", "a", "--", "lsp-set-addresses", "a", "0a:58:00:00:00:01 10.0.0.1",
		"--", "lsp-add", "ls", "b", "--", "lsp-set-addresses", "b", "0a:58:00:00:00:02 10.0.0.2")
	o.Chassis("node1", "172.18.0.3")
	o.Bind("b", "node1")
	trace := o.Trace("ls", `inport == "a" && eth.src == 0a:58:00:00:00:01 && eth.dst == 0a:58:00:00:00:02 && ip4.src == 10.0.0.1 && ip4.dst == 10.0.0.2 && ip.ttl == 64`, "--minimal")
	if !strings.Contains(trace, `output("b")`) {
		t.Errorf("packet does not get to b:\n%s", trace)
	}
}
