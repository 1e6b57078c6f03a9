package tcp

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestOutage: a connection whose packets are lost is broken soon, whether or not anything is sent.
func TestOutage(t *testing.T) {
	for name, send := range map[string]string{"with traffic": "x", "idle": ""} {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.New(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			// By this goroutine, which is in the namespace.
			conn, err := Dialer(time.Second).DialContext(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ns.Run("nft", "add table inet lost; add chain inet lost in { type filter hook input priority 0; policy drop; }")
			if _, err := conn.Write([]byte(send)); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ETIMEDOUT) {
				t.Errorf("the connection: %v", err)
			}
		})
	}
}
