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

// StartMaster runs a master for a node, which is how it is told from others. It does not
// wait until it works.
func (p *Plane) StartMaster(node string, number int) (*Master, error) {
	address := "127.0.0.1:" + strconv.Itoa(9400+number)
	args := append([]string{
		"--init-master", node, "--k8s-kubeconfig=" + p.path("kubeconfig"),
		"--metrics-bind-address=" + address, "--metrics-enable-pprof", "--loglevel=2",
		// As by default, but for how soon a master that waits takes what a leader gives up.
		"--ha-election-lease-duration=60", "--ha-election-renew-deadline=30", "--ha-election-retry-period=2",
	}, append(p.settings(), p.config.MasterArgs...)...)
	process, err := p.start("ovnkube-"+node, p.config.Ovnkube, args...)
	if err != nil {
		return nil, err
	}
	return &Master{&Served{process, p, address}}, nil
}

// settings are those of the cluster.
func (p *Plane) settings() []string {
	return []string{
		"--cluster-subnets=" + p.config.PodRange.String() + "/23", "--k8s-service-cidrs=" + p.config.ServiceRange.String(),
		"--gateway-mode=shared", "--nodeport", "--enable-egress-ip", "--enable-egress-service", "--enable-multi-external-gateway",
		"--nb-address=unix:" + p.path("nbproxy.sock"), "--sb-address=unix:" + p.path("sb.sock"),
	}
}

// Stop ends it in good order.
func (s *Served) Stop() { s.plane.forget(s.Process, s.Process.Stop) }

// Leads returns nil where the master leads by its own metrics.
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

// Profile writes what it says at a path below /debug/pprof into a file of a directory; it
// returns when it has said that.
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
