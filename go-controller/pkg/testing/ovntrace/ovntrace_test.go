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

// TestTraceOfChange traces what each change has led to, though no trace waits if nothing has changed.
func TestTraceOfChange(t *testing.T) {
	o := ovntrace.Start(t)
	o.NB.Nbctl("ls-add", "ls",
		"--", "lsp-add", "ls", "a", "--", "lsp-set-addresses", "a", "0a:58:00:00:00:01 10.0.0.1",
		"--", "lsp-add", "ls", "b", "--", "lsp-set-addresses", "b", "0a:58:00:00:00:02 10.0.0.2")
	o.Chassis("node1", "172.18.0.3")
	o.Bind("b", "node1")
	arrives := func() bool {
		return strings.Contains(o.Trace("ls", `inport == "a" && eth.src == 0a:58:00:00:00:01 && eth.dst == 0a:58:00:00:00:02 && ip4.src == 10.0.0.1 && ip4.dst == 10.0.0.2 && ip.ttl == 64`, "--minimal"), `output("b")`)
	}
	for n, change := range [][]string{
		nil, {"acl-add", "ls", "from-lport", "100", "ip4", "drop"}, {"acl-del", "ls"},
		{"lsp-set-port-security", "a", "0a:58:00:00:00:09"}, {"lsp-set-port-security", "a"},
	} {
		if change != nil {
			o.NB.Nbctl(change...)
		}
		want, before := n%2 == 0, o.NB.Records()
		if got := arrives(); got != want {
			t.Errorf("after %v the packet arrives: %v, want %v", change, got, want)
		}
		if o.NB.Records() == before {
			t.Errorf("a trace did not wait after %v", change)
		}
		before = o.NB.Records()
		if got := arrives(); got != want {
			t.Errorf("after %v, without a change, the packet arrives: %v, want %v", change, got, want)
		}
		if n := o.NB.Records(); n != before {
			t.Errorf("without a change, a trace wrote %d transactions", n-before)
		}
	}
	o.Sbctl("lsp-unbind", "b")
	before := o.NB.Records()
	arrives()
	if o.NB.Records() == before {
		t.Error("a trace did not wait after a change of the southbound database")
	}
}
