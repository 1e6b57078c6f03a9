package iptables

import (
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestRefused: a contributor to a table that the kernel refuses gets the error from every pass, and
// so does everybody else: the table is not as they want it.
func TestRefused(t *testing.T) {
	netnstest.New(t)
	w := newWriter(t, both(0, "nat", "A"))
	refused := host.Rules{nat(topology.IPv4, "A"): {"-j NO-SUCH-TARGET"}}
	for what, pass := range map[string]func() error{
		"Apply":               func() error { return w.Apply(t.Context(), "a", refused) },
		"Resync":              func() error { return w.Resync(t.Context()) },
		"Sweep":               func() error { return w.Sweep(t.Context()) },
		"another one's Apply": func() error { return w.Apply(t.Context(), "b", host.Rules{nat(topology.IPv4, "A"): {"-j RETURN"}}) },
	} {
		if err := w.Apply(t.Context(), "a", refused); err == nil {
			t.Fatal("the kernel took it")
		}
		if err := pass(); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if err := w.Apply(t.Context(), "a", nil); err != nil {
		t.Errorf("without it: %v", err)
	}
}
