package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Config is the configuration of the server.
type Config struct {
	// MTU of pod interfaces, in bytes.
	MTU int
	// ConfDir is the directory of the network configuration, Plugin the executable that it
	// names, and BinDir the directory of the runtime's executables.
	ConfDir, Plugin, BinDir string
	// Socket is the path of the server's socket; empty: cni.DefaultSocket.
	Socket string
	// Deadline of one ADD; 0: one minute.
	Deadline time.Duration
}

// Deps are the clients and drivers of the server.
type Deps struct {
	Kube kubernetes.Interface
	Pods coreinformers.PodInformer // of this node only
	OVS  ovs.Client
	// Ports provides the addresses of pods.
	Ports Ports
	// Subnets returns the pod subnets of this node; none while they are unknown.
	Subnets func() []netip.Prefix
	// Ready is closed once the node's network can serve pods.
	Ready <-chan struct{}
}

// Ports provides the logical ports of this node's pods from a source that users who may
// edit pods cannot write to.
type Ports interface {
	// Port returns the addresses of a port; false if it does not exist.
	Port(name string) (topology.PodAddresses, bool)
	// OnChange registers a function that is called with the name of each port that
	// changes.
	OnChange(f func(port string))
	// Err returns why ports are unknown or possibly outdated; nil otherwise.
	Err() error
}

const (
	defaultDeadline = time.Minute
	// otherDeadline bounds requests that wait only for Open vSwitch.
	otherDeadline = 20 * time.Second
	// confRetry is how soon writing the configuration file is retried after a failure.
	confRetry = time.Second
	// filesInterval is how often the configuration file and the socket are looked at: others may remove or change them.
	filesInterval = 2 * time.Second
	// collectInterval is how often ports of dead sandboxes are looked for.
	collectInterval = time.Minute
	// part is the name of this component in waits.
	part = "cni"
)

// Server serves the shim.
type Server struct {
	Config
	kube  kubernetes.Interface
	ovs   ovs.Client
	pods  *pods
	locks *keyLocks // of sandboxes
	// ports are the locks of logical ports: two sandboxes of a pod have the same one, of which only
	// the port of the later sandbox may be recorded or on br-int. They are taken after those of sandboxes.
	ports *keyLocks
	ready <-chan struct{}
	lost  chan struct{} // gets a value when ports of pods may have been deleted
	// socket is the os.FileInfo of the socket that this server has created last.
	socket atomic.Value
	// noPortMap is whether the log says that the executable for host ports is missing.
	noPortMap bool

	neighbors sync.Mutex // held while the kernel's neighbor entries are written
}

// New returns a Server that does nothing before Run.
func New(cfg Config, deps Deps) (*Server, error) {
	if cfg.Socket == "" {
		cfg.Socket = cni.DefaultSocket
	}
	if cfg.Deadline == 0 {
		cfg.Deadline = defaultDeadline
	}
	p, err := newPods(deps, cfg.Deadline)
	if err != nil {
		return nil, err
	}
	s := &Server{Config: cfg, kube: deps.Kube, ovs: deps.OVS, pods: p, locks: newKeyLocks("sandbox"), ports: newKeyLocks("logical port"), ready: deps.Ready,
		lost: make(chan struct{}, 1)}
	poke := func() {
		select {
		case s.lost <- struct{}{}:
		default:
		}
	}
	poke() // something may have been deleted while no server ran
	deps.OVS.OnReconnect(poke)
	deps.OVS.OnInterface(func(string) { poke() })
	return s, nil
}

// Run serves until ctx ends. The configuration file that makes the runtime use this plugin
// is written once the node's network is ready, and again if somebody removes or changes it; it stays when Run ends,
// because pods stay attached.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.listen()
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:     http.HandlerFunc(s.serve),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, 1)
	serve := func(l net.Listener) {
		if err := server.Serve(l); !errors.Is(err, net.ErrClosed) { // this closes the socket that is replaced
			select {
			case failed <- err:
			default:
			}
		}
	}
	go serve(listener)
	go s.keepCollecting(ctx)
	go s.keepRestoring(ctx, s.lost)
	go s.announce(ctx)
	look := time.NewTicker(filesInterval)
	defer look.Stop()
	for ctx.Err() == nil {
		select {
		case err := <-failed:
			return fmt.Errorf("serve the CNI socket %s: %w", s.Socket, err)
		case <-look.C:
			if next := s.listenAgain(); next != nil {
				go serve(next)
				_ = listener.Close() // nobody can connect to it any more
				listener = next
			}
		case <-ctx.Done():
		}
	}
	// Requests end soon after ctx, and remove what they have created so far.
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(draining); err != nil {
		return fmt.Errorf("stop serving the CNI socket %s: %w", s.Socket, err)
	}
	return nil
}

// serve answers one request of the shim.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	var request cni.Request
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		answer(w, nil, types.NewError(cni.CodeDecode, "request cannot be read", err.Error()))
		return
	}
	start := time.Now()
	var result any
	err := panics.Catch("cni", func() (err error) {
		result, err = s.Handle(r.Context(), request)
		return err
	})
	who, _ := cni.ParsePod(request.Args) // if there is none, the error says so
	what := []any{"command", request.Command, "pod", who, "sandbox", request.ContainerID, "took", time.Since(start)}
	if err != nil {
		klog.ErrorS(err, "CNI request failed", what...)
	} else {
		klog.V(2).InfoS("CNI request done", what...)
	}
	answer(w, result, err)
}

func answer(w http.ResponseWriter, result any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		var failure *types.Error
		if !errors.As(err, &failure) {
			failure = types.NewError(cni.CodeFailed, err.Error(), "")
		}
		w.WriteHeader(http.StatusInternalServerError)
		result = failure
	}
	if err := json.NewEncoder(w).Encode(result); err != nil {
		klog.V(4).InfoS("CNI answer not delivered", "reason", err.Error())
	}
}

// Handle executes one request. The result is nil for all commands except ADD; errors are
// *types.Error if the code matters.
func (s *Server) Handle(ctx context.Context, r cni.Request) (any, error) {
	do, limit := s.command(r.Command)
	if do == nil {
		return nil, types.NewError(cni.CodeInvalid, "unknown CNI command "+r.Command, "")
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if r.Command == cni.CommandGC || r.Command == cni.CommandStatus {
		return do(ctx, r)
	}
	ctx, done, err := s.locks.begin(ctx, r.ContainerID, r.Command == cni.CommandDel)
	if err != nil {
		return nil, err
	}
	defer done()
	return do(ctx, r)
}

// command returns the function that executes a command, and its deadline.
func (s *Server) command(name string) (func(context.Context, cni.Request) (any, error), time.Duration) {
	nothing := func(f func(context.Context, cni.Request) error) func(context.Context, cni.Request) (any, error) {
		return func(ctx context.Context, r cni.Request) (any, error) { return nil, f(ctx, r) }
	}
	switch name {
	case cni.CommandAdd:
		return func(ctx context.Context, r cni.Request) (any, error) { return s.add(ctx, r) }, s.Deadline
	case cni.CommandDel:
		return nothing(s.del), otherDeadline
	case cni.CommandCheck:
		return nothing(s.check), otherDeadline
	case cni.CommandGC:
		return nothing(s.gc), otherDeadline
	case cni.CommandStatus:
		return nothing(s.status), otherDeadline
	}
	return nil, 0
}

// status returns an error if ADD cannot succeed now.
func (s *Server) status(context.Context, cni.Request) error {
	select {
	case <-s.ready:
		return nil
	default:
		return types.NewError(cni.CodeNotReady, "network of the node is not ready", "")
	}
}
