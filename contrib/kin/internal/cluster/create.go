package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ovnkube/ovnkube/contrib/kin/internal/build"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/component"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/config"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/machine"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/plan"
	"github.com/ovnkube/ovnkube/contrib/kin/internal/supervise"
)

// CreateOptions are options of Create besides the configuration.
type CreateOptions struct {
	Config config.Cluster
	Paths  Paths
	// Source is the directory of the modules that the programs are built from.
	Source string
	// CRDs is a directory of manifests to apply first; it need not exist.
	CRDs string
	// Manifests is the directory of ovnkube's manifests. Its service accounts, their
	// roles and the admission policies are applied, or, with InstallManifests, the overlay
	// for kin beside it.
	Manifests string
	// Install is one of InstallProcesses and InstallManifests.
	Install string
	// Image is the archive of ovnkube's image, for InstallManifests.
	Image string
	// Ovnkube says whether to run ovnkube, and therefore to wait for nodes to be ready. If it is false,
	// InstallManifests only writes the manifests without applying them.
	Ovnkube bool
	// Wait limits how long to wait for the control plane and for the nodes.
	Wait time.Duration
	// KubeconfigOut is a further path to write the kubeconfig to.
	KubeconfigOut string
}

// Reporter shows the steps of a long operation.
type Reporter interface {
	// Step runs one step under a title. update replaces the note beside it.
	Step(title string, run func(update func(note string)) error) error
}

// Create creates a cluster. On failure the incomplete cluster is left in place.
func (s Store) Create(ctx context.Context, o CreateOptions, report Reporter) (*Cluster, error) {
	c, err := s.cluster(o.Config.Name)
	if err != nil {
		return nil, err
	}
	c.Record = Record{Config: o.Config, Paths: o.Paths, Ovnkube: o.Ovnkube, Install: o.Install}
	err = report.Step("Checking this machine", func(update func(string)) error {
		if err := c.checkMachine(); err != nil {
			return err
		}
		var err error
		c.Config.Datapath, err = chooseDatapath(c.Config.Datapath, machine.CheckKernelDatapath)
		update(c.Config.Datapath + " datapath")
		return err
	})
	if err != nil {
		return nil, err
	}
	err = report.Step("Building Kubernetes and images", func(update func(string)) error {
		if c.artifacts().Current(o.Source) {
			update("already built")
		}
		return c.artifacts().Build(ctx, o.Source, update)
	})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(s), 0o755); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	if err := os.Mkdir(c.path(), 0o700); errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("cluster %q exists; delete it with: kin delete cluster --name %s", c.name, c.name)
	} else if err != nil {
		return nil, fmt.Errorf("make cluster directory: %w", err)
	}
	unlock, err := c.lock()
	if err != nil {
		return c, err
	}
	defer unlock()
	type step struct {
		title string
		run   func(update func(string)) error
	}
	steps := []step{
		{fmt.Sprintf("Preparing %d nodes", c.Config.Nodes), func(func(string)) error { return c.prepare() }},
		{"Starting nodes", func(func(string)) error { return c.bootAll() }},
		// In parallel: the control plane spends much of its startup waiting.
		{"Starting the control plane, loading images", func(update func(string)) error {
			return each([]func() error{
				func() error { return c.awaitControlPlane(ctx, o.Wait, update) },
				func() error { return c.loadImages(ctx, o.Wait, o.Image) },
			}, func(run func() error) error { return run() })
		}},
		{"Installing manifests", func(update func(string)) error { return c.applyManifests(ctx, o.Wait, o.CRDs, o.Manifests, update) }},
		{"Installing ovnkube", func(update func(string)) error { return c.installOvnkube(ctx, o.CRDs, o.Manifests, update) }},
		{"Installing DNS", func(func(string)) error { return c.applyDNS(ctx) }},
		{"Joining nodes", func(update func(string)) error { return c.awaitNodes(ctx, o.Wait, update) }},
	}
	if o.Ovnkube {
		steps = append(steps, step{"Starting DNS", func(update func(string)) error { return c.awaitDNS(ctx, o.Wait, update) }})
	}
	for _, step := range steps {
		if err := report.Step(step.title, step.run); err != nil {
			return c, err
		}
	}
	if o.KubeconfigOut == "" {
		return c, nil
	}
	return c, c.writeKubeconfigTo(o.KubeconfigOut)
}

// prepare creates all files.
func (c *Cluster) prepare() error {
	if err := os.MkdirAll(c.path(machinesDir), 0o755); err != nil {
		return fmt.Errorf("make machines' directory: %w", err)
	}
	if err := c.save(); err != nil { // from here on delete and get find it
		return err
	}
	if err := c.prepareWire(); err != nil {
		return err
	}
	return each(c.Nodes(), c.prepareNode)
}

// bootAll starts the wire and then all nodes at once.
func (c *Cluster) bootAll() error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.Config.APIServerPort))
	if err != nil {
		return fmt.Errorf("find a port for the API server: %w", err)
	}
	defer listener.Close()
	c.Port = listener.Addr().(*net.TCPAddr).Port
	if err := c.save(); err != nil {
		return err
	}
	if err := c.certify(); err != nil {
		return err
	}
	if err := c.bootWire(listener.(*net.TCPListener)); err != nil {
		return err
	}
	return each(c.Nodes(), func(n plan.Node) error { return c.boot(n.Name) })
}

func (c *Cluster) awaitControlPlane(ctx context.Context, limit time.Duration, update func(string)) error {
	client, err := c.api()
	if err != nil {
		return err
	}
	server := c.Nodes()[0].Name
	return c.await(ctx, limit, []string{server}, func() (bool, string) {
		units, err := c.Services(server)
		if err != nil {
			return false, err.Error()
		}
		if waiting := notReady(units, component.Etcd, component.APIServer, component.ControllerManager, component.Scheduler); waiting != "" {
			update("waiting for " + waiting)
			return false, waiting
		}
		_, err = client.do(ctx, http.MethodGet, "/readyz", "", nil)
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})
}

// awaitNodes waits until the kubelets have registered, labels the nodes with their
// roles and, if there is a pod network, waits until they are ready and pods can
// be created.
func (c *Cluster) awaitNodes(ctx context.Context, limit time.Duration, update func(string)) error {
	client, err := c.api()
	if err != nil {
		return err
	}
	labelled := map[string]bool{}
	names := c.nodeNames()
	return c.await(ctx, limit, names, func() (bool, string) {
		have, err := client.nodes(ctx)
		if err != nil {
			return false, err.Error()
		}
		var missing []string
		for _, n := range c.Nodes() {
			state, registered := have[n.Name]
			if registered && !labelled[n.Name] {
				role := map[bool]string{true: "control-plane", false: "worker"}[n.ControlPlane()]
				if err := client.label(ctx, n.Name, "node-role.kubernetes.io/"+role, ""); err != nil {
					return false, err.Error()
				}
				labelled[n.Name] = true
			}
			if ready, why := state.ready(); !registered {
				missing = append(missing, n.Name+": not registered")
			} else if !ready && c.Ovnkube {
				missing = append(missing, n.Name+": "+why)
			}
		}
		// Without it the API server refuses a user's first pods.
		if _, err := client.do(ctx, http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", "", nil); err != nil {
			return false, err.Error()
		}
		if len(missing) > 0 {
			update(fmt.Sprintf("%d of %d", len(names)-len(missing), len(names)))
		}
		return len(missing) == 0, strings.Join(missing, "\n")
	})
}

// await polls until ask returns true. After the time limit it returns an error that says what is wrong
// on the machines.
func (c *Cluster) await(ctx context.Context, limit time.Duration, machines []string, ask func() (bool, string)) error {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	timeout := time.After(limit)
	for {
		done, why := ask()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-timeout:
			return fmt.Errorf("not there after %s: %s%s", limit, why, c.Diagnose(machines))
		case <-again.C:
		}
	}
}

func notReady(units []supervise.Status, names ...string) string {
	state := map[string]string{}
	for _, u := range units {
		state[u.Name] = u.State
	}
	for _, name := range names {
		if state[name] != supervise.StateReady {
			return name
		}
	}
	return ""
}

// accountManifests are those of ovnkube's manifests that kin applies when it starts
// ovnkube itself, with tokens of the accounts. The accounts come last.
var accountManifests = []string{"namespace.yaml", "admission.yaml", "rbac.yaml", "trace.yaml"}

// applyManifests applies a directory of resource definitions and the manifests of
// ovnkube's accounts, as far as they exist.
func (c *Cluster) applyManifests(ctx context.Context, limit time.Duration, crds, manifests string, update func(string)) error {
	if c.Install == InstallManifests && !c.Ovnkube {
		update("none")
		return nil
	}
	found, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil {
		return fmt.Errorf("look for resource definitions: %w", err)
	}
	var apply []string
	if len(found) > 0 {
		apply = append(apply, "--filename", crds)
	}
	for _, name := range accountManifests {
		if c.Install == InstallManifests {
			break // they are in the overlay
		}
		path := filepath.Join(manifests, name)
		if _, err := os.Stat(path); err == nil {
			apply = append(apply, "--filename", path)
		} else if c.Ovnkube || !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("ovnkube needs its service accounts (--manifests): %w", err)
		}
	}
	if len(apply) == 0 {
		update("none")
		return nil
	}
	if err := c.apply(ctx, apply...); err != nil || len(found) == 0 {
		return err
	}
	return c.kubectl(ctx, "wait", "--for=condition=Established", "--timeout="+limit.String(), "--filename", crds)
}

// apply applies manifests. The API server refuses unknown fields by itself then: kubectl would do so only after it had
// read the definitions of all resources, for which it takes more than its limit of half a minute on a very slow machine.
func (c *Cluster) apply(ctx context.Context, manifests ...string) error {
	return c.kubectl(ctx, append([]string{"apply", "--server-side", "--validate=false"}, manifests...)...)
}

func (c *Cluster) kubectl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, c.artifacts().Kubectl(), append([]string{"--kubeconfig=" + c.KubeconfigPath(), "--cache-dir=" + c.path("cache")}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// loadImages loads kin's images, and ovnkube's if it runs in pods, into every node
// as soon as the node's containerd is up.
func (c *Cluster) loadImages(ctx context.Context, limit time.Duration, ovnkube string) error {
	var paths []string
	for _, name := range build.ImageNames {
		paths = append(paths, filepath.Join(c.artifacts().Images(), name))
	}
	if c.Install == InstallManifests {
		paths = append(paths, ovnkube)
	}
	return each(c.Nodes(), func(n plan.Node) error {
		err := c.await(ctx, limit, []string{n.Name}, func() (bool, string) {
			units, err := c.Services(n.Name)
			if err != nil {
				return false, err.Error()
			}
			waiting := notReady(units, component.Containerd)
			return waiting == "", waiting
		})
		if err != nil {
			return err
		}
		return each(paths, func(path string) error { return c.loadImage(n, path) })
	})
}

// LoadImage loads an image archive into every running node.
func (c *Cluster) LoadImage(path string) error {
	return each(c.Nodes(), func(n plan.Node) error {
		if _, on := c.Machine(n.Name).Running(); !on {
			return nil
		}
		return c.loadImage(n, path)
	})
}

func (c *Cluster) loadImage(n plan.Node, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open image: %w", err)
	}
	defer file.Close()
	var said strings.Builder
	err = machine.Command(c.Machine(n.Name), component.ImportImage(), func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = file, &said, &said
	})
	if err != nil {
		return fmt.Errorf("load %s into %s: %w: %s", path, n.Name, err, strings.TrimSpace(said.String()))
	}
	return nil
}

func (c *Cluster) writeKubeconfigTo(path string) error {
	text, err := c.Kubeconfig()
	if err != nil {
		return err
	}
	return writeFile(path, text, 0o600)
}

// each runs f for all items at once and returns all errors.
func each[T any](items []T, f func(T) error) error {
	failed := make([]error, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { failed[i] = f(item) })
	}
	all.Wait()
	return errors.Join(failed...)
}
