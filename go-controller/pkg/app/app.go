package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/audit"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// Role selects the roles of this process. Each field enables a role and is the node's name in
// Kubernetes.
type Role struct {
	// Master plans the network in the northbound database; one master of a cluster is active at a
	// time.
	Master string
	// Node connects this host and its pods.
	Node string
	// CleanupNode removes everything that Node created on this host, and exits.
	CleanupNode string
}

// Validate rejects meaningless combinations.
func (r Role) Validate() error {
	switch {
	case r == Role{}:
		return errors.New("nothing to do: one of --init-master NAME, --init-node NAME (or both) or --cleanup-node NAME is needed")
	case r.CleanupNode != "" && (r.Master != "" || r.Node != ""):
		return errors.New("--cleanup-node goes with neither --init-master nor --init-node")
	}
	return nil
}

// Env is shared by the roles of a process.
type Env struct {
	Config config.Config
	// Kube is the client for the built-in kinds.
	Kube kubernetes.Interface
	// REST is the configuration of clients for our own kinds.
	REST *rest.Config
	// HTTP is what clients send requests with, so that they share connections.
	HTTP *http.Client
	// APIServers is the informer of where REST reaches the API servers. It runs before any role does, so that a master that
	// takes over need not wait for a name server.
	APIServers cache.SharedIndexInformer
	Ready      *Checks
	Metrics    *metrics.Set
	// Audit is where a leading master records egress; nil: nowhere.
	Audit audit.Sink
	// leader is when this process was last known to lead.
	leader leadership
}

// Run runs the roles until ctx is done, and returns nil then. An error means that the process must
// be restarted.
func Run(ctx context.Context, cfg config.Config, role Role) error {
	if err := role.Validate(); err != nil {
		return err
	}
	klog.InfoS("Starting", "version", version.Get().String(), "master", role.Master, "node", role.Node, "cleanup", role.CleanupNode)
	if role.CleanupNode != "" {
		return cleanupNode(ctx, cfg, role.CleanupNode)
	}
	recoverClientGo()
	env, err := newEnv(cfg)
	if err != nil {
		return err
	}
	// Both roles count as starting before the server answers.
	started := map[string]func(){}
	for name, given := range map[string]string{"master": role.Master, "node": role.Node} {
		if given != "" {
			started[name] = env.Ready.Gate(name)
		}
	}
	servers, err := listen(cfg, env)
	if err != nil {
		return err
	}
	recorder, stopEvents, err := newRecorder(env)
	if err != nil {
		return err
	}
	defer stopEvents()
	if role.Master != "" {
		page, err := pageServer(env)
		if err != nil {
			return err
		}
		if page != nil {
			servers = append(servers, page)
		}
		if env.Audit, err = openAudit(cfg.Logging); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	go env.APIServers.RunWithContext(ctx)
	for _, s := range servers {
		group.Go(func() error { return s.serve(ctx) })
	}
	reports := &failureReports{node: cmp.Or(role.Node, role.Master), recorder: recorder, failures: queue.Failures, waits: waits.All}
	group.Go(part(ctx, "failures", reports.Run))
	if role.Master != "" {
		group.Go(part(ctx, "master", func(ctx context.Context) error {
			started["master"]() // a master that waits for the lease is ready to take over
			self, release := identity(masterDir, role.Master)
			defer release()
			return lead(ctx, env, self, func(ctx context.Context) error {
				leading, err := fenced(env, self)
				if err != nil {
					return err
				}
				return runMaster(ctx, leading, role.Master, self)
			})
		}))
	}
	if role.Node != "" {
		group.Go(part(ctx, "node", func(ctx context.Context) error { return runNode(ctx, env, role.Node, started["node"]) }))
	}
	return group.Wait()
}

// part runs a role, and returns an error if the role ends while ctx is not done.
func part(ctx context.Context, name string, run func(context.Context) error) func() error {
	return func() error {
		if err := run(ctx); err != nil {
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return nil
			}
			return fmt.Errorf("%s: %w", name, err)
		}
		if ctx.Err() == nil {
			return fmt.Errorf("%s: ended by itself", name)
		}
		return nil
	}
}

var clientGo sync.Once

// recoverClientGo makes a panic in a goroutine of client-go, e.g. one that handles the events of an
// informer, end only what that goroutine was doing, and not the process. client-go logs it.
func recoverClientGo() {
	clientGo.Do(func() {
		utilruntime.ReallyCrash = false
		utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, func(context.Context, any) { panics.Count("client-go") })
	})
}

func newEnv(cfg config.Config) (*Env, error) {
	rc, err := restConfig(cfg.Kubernetes, serviceAccountDir)
	if err != nil {
		return nil, err
	}
	web, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("make the client of the API server: %w", err)
	}
	cs, err := kubeClient(rc, web)
	if err != nil {
		return nil, err
	}
	env := &Env{Config: cfg, Kube: cs, REST: rc, HTTP: web, APIServers: newAPIServers(cfg, rc), Ready: NewChecks(), Metrics: metrics.New(version.Get())}
	// Queues get their metrics when they are created, so before any role runs.
	workqueue.SetProvider(env.Metrics.Workqueue())
	env.Metrics.Checks(env.Ready.Results)
	env.Metrics.Failing(queue.Failing)
	env.Metrics.Waiting(waits.Counts)
	env.Metrics.Panics(panics.Counts)
	env.Metrics.Certificates(func() map[string]time.Time { return expirations(cfg) })
	return env, nil
}
