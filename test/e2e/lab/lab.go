package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/kin"
)

// ControlPlane is the node that runs the OVN databases and ovnkube's master.
const ControlPlane = "ovn-control-plane"

// Outside is the name of the host outside the cluster, on the nodes' wire.
const Outside = "outside"

// MachineProbe is the path of the probe on a machine, whose /run is its own and empty at boot.
const MachineProbe = "/run/probe"

// OutsideAddresses are the addresses of Outside, IPv4 first, in kin's default
// node subnets.
var OutsideAddresses = []netip.Addr{
	netip.MustParseAddr("172.18.0.100"),
	netip.MustParseAddr("fc00:f853:ccd:e793::100"),
}

// Options are the options of a lab's cluster.
type Options struct {
	Name        string
	GatewayMode string
	// Nodes is the number of nodes; zero for three.
	Nodes int
	// IPFamily is "ipv4", "ipv6" or "dual"; empty for dual.
	IPFamily string
	// Config is a kin configuration; empty for kin's default.
	Config string
	// Install is "manifests" or "processes", as in kin.Options; empty for processes, which tests
	// can stop and start one by one.
	Install string
	// Stoppable allows pods of DaemonSets to be stopped, see Service. All of them restart once.
	Stoppable bool
	// Before is called when the nodes exist but nothing of ovnkube is installed yet; ovnkube is
	// installed afterwards, the way users do it. May be nil; only with Install "manifests".
	Before func(context.Context, *Lab) error
	// Log receives the output of kin; nil discards it.
	Log io.Writer
	// Keep uses the cluster with this name if there is one, and does not delete it at the end.
	Keep bool
	// Announce is called with each kin command line before it runs; may be nil.
	Announce func(args []string)
}

// Lab is a running cluster.
type Lab struct {
	Kin    kin.Cluster
	Kube   kubernetes.Interface
	Egress versioned.Interface
	// Dir holds the lab's files: the image, manifests, captures. Close removes it.
	Dir string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string

	rest   *rest.Config
	family string // as in Options
	// installed reports whether ovnkube and OVN run as pods from the manifests.
	installed bool
	probe     string // the probe program, a path on this machine
	servers   map[string]*kin.Attached
	keep      bool
	closed    bool
}

// Start creates the cluster, loads the probe's image and adds the outside host.
// On error nothing is left behind.
func Start(ctx context.Context, o Options) (lab *Lab, err error) {
	program, err := kin.Program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ovnkube-lab-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the lab: %w", err)
	}
	lab = &Lab{
		Kin:     kin.Cluster{Program: program, Name: o.Name, Log: o.Log},
		Dir:     dir,
		servers: map[string]*kin.Attached{},
		keep:    o.Keep,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lab.Close(context.WithoutCancel(ctx)))
			lab = nil
		}
	}()
	create := kin.Options{Nodes: cmp.Or(o.Nodes, 3), GatewayMode: o.GatewayMode, IPFamily: cmp.Or(o.IPFamily, "dual"), Install: cmp.Or(o.Install, "processes"), NoOvnkube: o.Before != nil}
	lab.family, lab.installed = create.IPFamily, create.Install == "manifests"
	if o.Config != "" {
		if create.Config, err = lab.WriteFile("kin.yaml", o.Config); err != nil {
			return lab, err
		}
	}
	exists := false
	if o.Keep {
		clusters, err := lab.Kin.Clusters(ctx)
		if err != nil {
			return lab, err
		}
		exists = slices.Contains(clusters, o.Name)
	}
	if !exists {
		if o.Announce != nil {
			o.Announce(lab.Kin.CreateArgs(create))
		}
		if err := lab.Kin.Create(ctx, create); err != nil {
			return lab, err
		}
	}
	if err := lab.connect(ctx); err != nil {
		return lab, err
	}
	if exists {
		if err := lab.clear(ctx); err != nil {
			return lab, err
		}
	}
	if o.Before != nil {
		if err := o.Before(ctx, lab); err != nil {
			return lab, err
		}
		if err := lab.Apply(ctx); err != nil {
			return lab, err
		}
	}
	if o.Stoppable {
		if err := lab.makeStoppable(ctx); err != nil {
			return lab, err
		}
	}
	if err := lab.loadProbe(ctx); err != nil {
		return lab, err
	}
	if err := lab.Kin.AddHost(ctx, Outside, "", texts(lab.OfFamilies(OutsideAddresses))...); err != nil {
		return lab, err
	}
	return lab, lab.Serve(ctx, Outside)
}

// connect creates the API clients.
func (l *Lab) connect(ctx context.Context) error {
	var err error
	if l.Kubeconfig, err = l.Kin.Kubeconfig(ctx); err != nil {
		return err
	}
	if l.rest, err = clientcmd.BuildConfigFromFlags("", l.Kubeconfig); err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	l.rest.QPS = -1 // no limit, whose errors would hide what Until waits for
	if l.Kube, err = kubernetes.NewForConfig(l.rest); err != nil {
		return fmt.Errorf("make a Kubernetes client: %w", err)
	}
	if l.Egress, err = versioned.NewForConfig(l.rest); err != nil {
		return fmt.Errorf("make a client of our API groups: %w", err)
	}
	// Pods cannot be created before the controller manager has created their service account.
	return Until(ctx, time.Minute, "the default service account", func(ctx context.Context) error {
		_, err := l.Kube.CoreV1().ServiceAccounts(Namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// OfFamilies returns those of the addresses that are of the cluster's families.
func (l *Lab) OfFamilies(addresses []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !l.Has(a.Is4()) })
}

// Has reports whether the cluster has the family.
func (l *Lab) Has(is4 bool) bool {
	return l.family == "dual" || is4 == (l.family == "ipv4")
}

func texts(addresses []netip.Addr) []string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i] = a.String()
	}
	return out
}

// SendProbe copies the probe to a node or an outside host, until it boots.
func (l *Lab) SendProbe(ctx context.Context, machine string) error {
	program, err := os.Open(l.probe)
	if err != nil {
		return fmt.Errorf("open the probe: %w", err)
	}
	defer program.Close()
	return l.Kin.Send(ctx, machine, MachineProbe, program)
}

// Serve copies the probe to a node or an outside host and starts its server there; it ends with the
// lab.
func (l *Lab) Serve(ctx context.Context, machine string) error {
	if err := l.SendProbe(ctx, machine); err != nil {
		return err
	}
	server, err := l.Kin.ExecAttached(machine, MachineProbe, "serve", "-port", fmt.Sprint(ServePort), "-until-stdin-closes")
	if err != nil {
		return err
	}
	l.servers[machine] = server
	return l.awaitServer(ctx, machine, ServePort)
}

// Release ends what the lab runs on the machines, and keeps the cluster.
func (l *Lab) Release() error {
	var errs []error
	for machine, s := range l.servers {
		if err := s.Close(); err != nil {
			errs = append(errs, fmt.Errorf("end the server on %s: %w", machine, err))
		}
		delete(l.servers, machine)
	}
	return errors.Join(errs...)
}

// Close deletes the cluster, unless it is to be kept, and the lab's files, unless already done.
func (l *Lab) Close(ctx context.Context) error {
	if l.closed {
		return nil
	}
	// A server on a machine that was stopped has already ended with an error.
	_ = l.Release()
	err := os.RemoveAll(l.Dir)
	if !l.keep {
		err = errors.Join(l.Kin.Delete(ctx), err)
	}
	l.closed = err == nil
	return err
}

// Closed reports whether the cluster has been deleted.
func (l *Lab) Closed() bool { return l.closed }

// Nodes returns the cluster's nodes by name, as their annotations describe them.
func (l *Lab) Nodes(ctx context.Context) (map[string]topology.Node, error) {
	list, err := l.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make(map[string]topology.Node, len(list.Items))
	for i := range list.Items {
		n, err := kube.Node(&list.Items[i])
		if err != nil {
			return nil, err
		}
		nodes[n.Name] = n
	}
	return nodes, nil
}

// NodeAddresses returns the InternalIP addresses of a node, IPv4 first.
func (l *Lab) NodeAddresses(ctx context.Context, name string) ([]netip.Addr, error) {
	node, err := l.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get node: %w", err)
	}
	var addresses []netip.Addr
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		addr, err := netip.ParseAddr(a.Address)
		if err != nil {
			return nil, fmt.Errorf("address of node %s: %w", name, err)
		}
		addresses = append(addresses, addr)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses, nil
}

// Until polls a condition until it returns nil; the error is the last one that it returned, except
// that of an attempt cut short by the end of the time, which says nothing. The limit is for an
// ordinary machine.
func Until(ctx context.Context, limit time.Duration, what string, condition func(context.Context) error) error {
	return untilEvery(ctx, 200*time.Millisecond, limit, what, condition)
}

// untilEvery is Until with the interval between attempts, for conditions that cost little.
func untilEvery(ctx context.Context, interval, limit time.Duration, what string, condition func(context.Context) error) error {
	limit = time.Duration(float64(limit) * figures.Slowness())
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last := errors.New("no attempt ended in time")
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", limit, what, last)
		case <-tick.C:
		}
	}
}
