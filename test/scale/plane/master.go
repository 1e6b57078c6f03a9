package plane

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Served is a running ovnkube that serves metrics and profiles.
type Served struct {
	*Process
	plane   *Plane
	address string // of metrics and profiles
}

// Master is a running master.
type Master struct{ *Served }

// StartMaster starts a master with a node's name, which distinguishes it from other masters. It does not
// wait until the master is ready.
func (p *Plane) StartMaster(node string, number int) (*Master, error) {
	address := "127.0.0.1:" + strconv.Itoa(9400+number)
	args := append([]string{
		"--init-master", node, "--k8s-kubeconfig=" + p.path("kubeconfig"),
		"--metrics-bind-address=" + address, "--metrics-enable-pprof", "--loglevel=2",
		// The defaults, except for how soon a waiting master acquires a released lease.
		"--ha-election-lease-duration=60", "--ha-election-renew-deadline=30", "--ha-election-retry-period=2",
	}, append(p.settings(), p.config.MasterArgs...)...)
	process, err := p.start("ovnkube-"+node, p.config.Ovnkube, args...)
	if err != nil {
		return nil, err
	}
	return &Master{&Served{process, p, address}}, nil
}

// settings returns the settings of the cluster.
func (p *Plane) settings() []string {
	return []string{
		"--cluster-subnets=" + p.config.PodRange.String() + "/23", "--k8s-service-cidrs=" + p.config.ServiceRange.String(),
		"--gateway-mode=shared", "--nodeport", "--enable-egress-ip", "--enable-egress-service", "--enable-multi-external-gateway",
		"--nb-address=" + p.northbound("nbproxy"), "--sb-address=unix:" + p.path("sb.sock"),
	}
}

// Stop shuts the process down gracefully.
func (s *Served) Stop() { s.plane.forget(s.Process, s.Process.Stop) }

// Leads returns nil if the master leads according to its own metrics.
func (m *Master) Leads(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.address+"/metrics", nil)
	if err != nil {
		return err
	}
	response, err := insecure.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && !strings.Contains(string(text), "\novnkube_leader 1\n") {
		err = fmt.Errorf("%s does not lead", m.Name)
	}
	return err
}

// Profile writes the response of a path below /debug/pprof into a file of a directory. It
// returns when the profile is complete.
func (s *Served) Profile(ctx context.Context, dir, name, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/debug/pprof/"+path, nil)
	if err != nil {
		return err
	}
	response, err := insecure.Do(request)
	if err != nil {
		return fmt.Errorf("ask for a profile: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask for a profile: %s", response.Status)
	}
	file, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, response.Body)
	return err
}
