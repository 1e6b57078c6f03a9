package cluster

import (
	"crypto/x509"
	"reflect"
	"strings"
	"testing"

	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pki"
)

// TestClockWasAhead: what was signed while the clock was ahead is signed again once it is right, on the side of the
// issuer and of a node.
func TestClockWasAhead(t *testing.T) {
	c := &clock{}
	k := Issuer{Client: server(agent("n1")), Namespace: namespace, Now: c.Now, Events: record.NewFakeRecorder(10)}
	for _, days := range []int{0, 100, 0} { // accepts assumes the last
		c.set(days)
		if err := k.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	secrets := secretsOf(t, k)
	for _, e := range entries {
		use := x509.ExtKeyUsageServerAuth
		if !e.subject.Server {
			use = x509.ExtKeyUsageClientAuth
		}
		if !accepts(secrets[e.authority][keyCert], certificate(t, secrets[e.name][keyCert]), use, "") {
			t.Errorf("the certificate in %s is not accepted", e.name)
		}
	}
	run(t, k)
	node := Node{Client: k.Client, Name: "n1", Dir: pki.Dir(t.TempDir()), Now: c.Now}
	for _, days := range []int{100, 0} {
		c.set(days)
		if err := node.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !accepts(secrets[nodes][keyCert], certificate(t, read(t, node.Dir, "ovn-cert.pem")), x509.ExtKeyUsageClientAuth, "") {
		t.Error("the certificate of the node is not accepted")
	}
	before := read(t, node.Dir, "ovn-cert.pem")
	if err := node.Ensure(t.Context()); err != nil || !reflect.DeepEqual(before, read(t, node.Dir, "ovn-cert.pem")) {
		t.Errorf("the node has requested another one: %v", err)
	}
}

// TestAuthorityOfTheFuture: an authority that is not valid yet is reported, not replaced, and nothing is changed.
func TestAuthorityOfTheFuture(t *testing.T) {
	c := &clock{}
	events := record.NewFakeRecorder(100)
	k := Issuer{Client: server(agent("n1")), Namespace: namespace, Now: c.Now, Events: events}
	c.set(100)
	if err := k.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := secretsOf(t, k)
	c.set(0)
	if err := k.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "secret "+nodes) || !strings.Contains(err.Error(), "is not valid before") {
		t.Errorf("Ensure: %v", err)
	}
	select {
	case e := <-events.Events:
		if !strings.HasPrefix(e, "Warning AuthorityNotYetValid ") || !strings.Contains(e, "the clock") {
			t.Errorf("Event %s", e)
		}
	default:
		t.Error("no Event")
	}
	if !reflect.DeepEqual(before, secretsOf(t, k)) {
		t.Error("Secrets have changed")
	}
	c.set(100)
	if err := k.Ensure(t.Context()); err != nil {
		t.Errorf("the clock is right again: %v", err)
	}
}
