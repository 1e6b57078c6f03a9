package ovsdb

import (
	"encoding/json"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestServerProbesLater: long after our probe the server sends one of its own, and ends connections
// on which it gets no answer.
func TestServerProbesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, its := net.Pipe()
		w := newStateWatch(ours)
		go w.run("OVN_Northbound", nil)
		in, out := json.NewDecoder(its), json.NewEncoder(its)
		probed := make(chan error, 1)
		go func() { probed <- w.probe(t.Context(), time.Second) }()
		var m message
		if err := in.Decode(&m); err != nil || m.Method != "echo" {
			t.Fatalf("no probe: %+v, %v", m, err)
		}
		if err := out.Encode(message{ID: m.ID, Result: m.Params}); err != nil {
			t.Fatal(err)
		}
		if err := <-probed; err != nil {
			t.Errorf("probe: %v", err)
		}
		<-time.After(time.Minute)
		if err := out.Encode(message{ID: "echo", Method: "echo", Params: json.RawMessage("[1]")}); err != nil {
			t.Fatal(err)
		}
		var answer message
		if err := in.Decode(&answer); err != nil || answer.ID != "echo" || string(answer.Result) != "[1]" {
			t.Errorf("answer to the server's probe: %+v, %v", answer, err)
		}
		w.close()
		<-w.lost
	})
}
