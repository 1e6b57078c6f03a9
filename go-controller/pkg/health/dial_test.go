package health

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestLostSession: a session whose packets are lost is broken, so that another one can be opened, rather than continued when the
// kernel next repeats what it has sent: after an outage the node would not answer for as long again.
func TestLostSession(t *testing.T) {
	ns := netnstest.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := dial(t.Context(), l.Addr().String()) // by this goroutine, which is in the namespace
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ns.Run("nft", "add table inet lost; add chain inet lost in { type filter hook input priority 0; policy drop; }")
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("the session: %v", err)
	}
}
