package supervise

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Unit is one daemon.
type Unit struct {
	// Name is unique within the machine, and is the name of the log file.
	Name string `json:"name"`
	// Before has commands that run one after the other before every start.
	Before [][]string `json:"before,omitempty"`
	// Exec is the daemon's command line; it stays in the foreground.
	Exec []string `json:"exec"`
	// Env is added to the machine's environment.
	Env []string `json:"env,omitempty"`
	// Ready probes whether the daemon is ready; without it, the daemon is ready once started.
	Ready *Probe `json:"ready,omitempty"`
	// Started has commands that run like Before after every start, once Ready has succeeded.
	Started [][]string `json:"started,omitempty"`
	// After lists units that must be ready before this one's first start.
	After []string `json:"after,omitempty"`
	// Freeze lists units that are stopped (SIGSTOP) from each start of this one
	// until its Started commands have finished.
	Freeze []string `json:"freeze,omitempty"`
}

// Probe is a readiness check; the first field that is set is used.
type Probe struct {
	// Unix is a socket that must accept connections.
	Unix string `json:"unix,omitempty"`
	// TCP is an address that must accept connections.
	TCP string `json:"tcp,omitempty"`
	// HTTP is a URL that must answer with 200; certificates are not verified.
	HTTP string `json:"http,omitempty"`
	// Exec is a command that must succeed.
	Exec []string `json:"exec,omitempty"`
}

// State of a unit.
const (
	StateWaiting  = "waiting"  // for the units it comes after
	StateStarting = "starting" // not ready yet
	StateReady    = "ready"
	StateBackoff  = "backoff" // ended by itself, will be restarted
	StateStopped  = "stopped" // on request
)

// Status is the status of a unit.
type Status struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Pid      int    `json:"pid,omitempty"`
	Restarts int    `json:"restarts"`
	// Since is when State began.
	Since time.Time `json:"since"`
	// Problem is the latest reason for not being ready.
	Problem string `json:"problem,omitempty"`
}

// A probe may take from probeTimeout to lastProbeTimeout: after each probe that times out,
// the next one gets twice the time, so that probes succeed on a slow machine
// too.
const (
	probeTimeout     = 2 * time.Second
	lastProbeTimeout = time.Minute
)

var prober = &http.Client{
	Transport: &http.Transport{
		// The probe only checks whether this machine's own server is up, not its identity.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	},
}

func (p *Probe) ask(ctx context.Context, run func(context.Context, []string) error) error {
	switch {
	case p == nil:
		return nil
	case p.Unix != "":
		return dial(ctx, "unix", p.Unix)
	case p.TCP != "":
		return dial(ctx, "tcp", p.TCP)
	case p.HTTP != "":
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.HTTP, nil)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		response, err := prober.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", p.HTTP, response.Status)
		}
		return nil
	case len(p.Exec) > 0:
		return run(ctx, p.Exec)
	}
	return nil
}

func dial(ctx context.Context, network, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Check returns an error unless a set of units is valid: unique names, and an order
// without unknown names or cycles.
func Check(units []Unit) error {
	_, err := order(units)
	return err
}

// order sorts units so that each follows those it comes after.
func order(units []Unit) ([]string, error) {
	after := map[string][]string{}
	for _, u := range units {
		if _, twice := after[u.Name]; twice {
			return nil, fmt.Errorf("unit %s is there twice", u.Name)
		}
		if len(u.Exec) == 0 {
			return nil, fmt.Errorf("unit %s has no command", u.Name)
		}
		after[u.Name] = u.After
	}
	var sorted []string
	done := map[string]int{} // 1 being visited, 2 sorted
	var visit func(name string) error
	visit = func(name string) error {
		switch done[name] {
		case 1:
			return fmt.Errorf("unit %s comes after itself", name)
		case 2:
			return nil
		}
		done[name] = 1
		for _, earlier := range after[name] {
			if _, known := after[earlier]; !known {
				return fmt.Errorf("unit %s comes after %s, which is not there", name, earlier)
			}
			if err := visit(earlier); err != nil {
				return err
			}
		}
		done[name] = 2
		sorted = append(sorted, name)
		return nil
	}
	for _, u := range units {
		if err := visit(u.Name); err != nil {
			return nil, err
		}
	}
	return sorted, nil
}

// LogDir is the directory of units' output, within the machine.
const LogDir = "/var/log/kin"

// maxLog is the size in bytes beyond which a log is renamed when its unit starts.
const maxLog = 64 << 20

func openLog(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	path := filepath.Join(dir, name+".log")
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("put log aside: %w", err)
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return file, nil
}
