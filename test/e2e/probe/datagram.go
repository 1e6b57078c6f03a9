package main

import (
	"bytes"
	"net"
)

// maxDatagram is more than any datagram holds.
const maxDatagram = 1 << 16

// answerAll answers by UDP what /who says, padded with blanks to the size of the question: if the
// question is too large for the path, so is the answer.
func answerAll(conn net.PacketConn) {
	in := make([]byte, maxDatagram)
	for {
		n, client, err := conn.ReadFrom(in)
		if err != nil {
			return
		}
		out := []byte(who(client.String()))
		out = append(out, bytes.Repeat([]byte{' '}, max(0, n-len(out)))...)
		_, _ = conn.WriteTo(out, client)
	}
}
