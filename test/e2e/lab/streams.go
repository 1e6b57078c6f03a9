package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/kin"
)

// StreamReport is the report of a stream pod about its connection.
type StreamReport struct {
	Echoed     int `json:"echoed"`
	Reconnects int `json:"reconnects"`
	// LastError is the error of the last connection that broke.
	LastError    string `json:"lastError"`
	MaxGapMillis int64  `json:"maxGapMillis"`
}

// Report returns how the connection of a stream pod fared since the last reset.
func (l *Lab) Report(ctx context.Context, pod string, reset bool) (StreamReport, error) {
	url := fmt.Sprintf("http://127.0.0.1:%d/report", reportPort)
	if reset {
		url += "?reset"
	}
	var r StreamReport
	out, err := l.Call(ctx, pod, true, "get", url)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return r, fmt.Errorf("report of pod %s: %w", pod, err)
	}
	return r, nil
}

// Pulses returns the answers that a pulse pod got since the last reset, by the address that it
// queried.
func (l *Lab) Pulses(ctx context.Context, pod string, reset bool) (map[netip.Addr]StreamReport, error) {
	url := fmt.Sprintf("http://127.0.0.1:%d/report", reportPort)
	if reset {
		url += "?reset"
	}
	out, err := l.Call(ctx, pod, true, "get", url)
	if err != nil {
		return nil, err
	}
	said := map[netip.AddrPort]StreamReport{}
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		return nil, fmt.Errorf("report of pod %s: %w", pod, err)
	}
	reports := map[netip.Addr]StreamReport{}
	for to, r := range said {
		reports[to.Addr()] = r
	}
	return reports, nil
}

// MaxGap is the longest time without an answer.
func (r StreamReport) MaxGap() time.Duration { return time.Duration(r.MaxGapMillis) * time.Millisecond }

// Solicit has a machine continuously ask the wire who has the given addresses, until the returned
// function is called.
func (l *Lab) Solicit(machine string, addresses ...netip.Addr) (stop func(), err error) {
	command := []string{MachineProbe, "solicit"}
	for _, a := range addresses {
		command = append(command, a.String())
	}
	asking, err := l.Kin.ExecAttached(machine, command...)
	if err != nil {
		return nil, err
	}
	return func() { _ = asking.Close() }, nil
}

// Client is a program on an outside machine that keeps one connection busy.
type Client struct {
	lab     *Lab
	machine string
	port    int
	running *kin.Attached
}

// StartClient has a machine that serves keep a connection to an echo server busy. port is a free
// port of the machine, for its report.
func (l *Lab) StartClient(machine string, port int, to netip.AddrPort) (*Client, error) {
	running, err := l.Kin.ExecAttached(machine, "sh", "-c", `"$0" "$@" & cat >/dev/null; kill $!`,
		MachineProbe, "stream", "-port", fmt.Sprint(port), "-to", to.String())
	if err != nil {
		return nil, err
	}
	return &Client{lab: l, machine: machine, port: port, running: running}, nil
}

// Report returns how the connection fared since the last reset.
func (c *Client) Report(ctx context.Context, reset bool) (StreamReport, error) {
	url := fmt.Sprintf("http://127.0.0.1:%d/report", c.port)
	if reset {
		url += "?reset"
	}
	var r StreamReport
	out, err := c.lab.Call(ctx, c.machine, false, "get", url)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return r, fmt.Errorf("report of a client on %s: %w", c.machine, err)
	}
	return r, nil
}

// Close ends the client.
func (c *Client) Close() { _ = c.running.Close() }
