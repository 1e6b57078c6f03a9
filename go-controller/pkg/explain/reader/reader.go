// Package reader reads the input of package explain from an API server: it lists
// objects, and writes nothing.
//
// Callers: the command "ovnkube egress", and app for the page of the master.
package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	servicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	routeclient "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned"
	serviceclient "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned"
	ipclient "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// The objects in the namespace of ovnkube that describe the cluster.
const (
	lease     = "ovn-kubernetes-master"
	configMap = "ovnkube"
	fileName  = "ovnkube.conf"
)

// Clients access the API server.
type Clients struct {
	Kube     kubernetes.Interface
	IPs      ipclient.Interface
	Services serviceclient.Interface
	Routes   routeclient.Interface
	// Metadata reads objects without their spec and status.
	Metadata metadata.Interface
	// Streams accesses the same objects as IPs, and decodes EgressIPs while they arrive; nil: IPs lists
	// them.
	Streams rest.Interface
}

// NewClients creates clients. They have no client-side rate limit, since the API server limits
// its clients itself.
func NewClients(rc *rest.Config) (c Clients, err error) {
	rc = rest.CopyConfig(rc)
	rc.QPS = -1
	web, err := rest.HTTPClientFor(rc) // for all, so that they share connections
	if err != nil {
		return c, fmt.Errorf("make the client of the API server: %w", err)
	}
	var errs [5]error
	c.Kube, errs[0] = kubernetes.NewForConfigAndClient(kube.Protobuf(rc), web)
	c.IPs, errs[1] = ipclient.NewForConfigAndClient(rc, web)
	c.Services, errs[2] = serviceclient.NewForConfigAndClient(rc, web)
	c.Routes, errs[3] = routeclient.NewForConfigAndClient(rc, web)
	c.Metadata, errs[4] = metadata.NewForConfigAndClient(metadata.ConfigFor(rc), web)
	err = errors.Join(errs[:]...)
	if err == nil {
		c.Streams = c.IPs.EgressIPV1().RESTClient()
	}
	return c, err
}

// Settings returns the settings of the cluster, or the settings assumed instead with a
// note about the reason.
type Settings func(ctx context.Context, c kubernetes.Interface, namespace string) (s explain.Settings, note string, err error)

// Read lists all objects, all kinds concurrently. namespace is that of ovnkube. If reading the settings,
// the lease of the master, or its published probe results is forbidden, the snapshot gets a note; everything else
// must be readable, and the error names what is not. If the API server does not have a kind of object,
// this is noted if its feature is enabled.
func Read(ctx context.Context, c Clients, namespace string, settings Settings) (explain.Snapshot, error) {
	s, missing := explain.Snapshot{System: namespace}, &kinds{}
	if err := together(append(kindsButPods(ctx, c, &s, missing), func() (err error) {
		s.Pods, err = pods(ctx, c, podList{})
		return err
	})); err != nil {
		return s, err
	}
	if err := readOwn(ctx, c.Kube, namespace, settings, &s); err != nil {
		return s, err
	}
	noteMissing(&s, missing)
	return s, nil
}

// kindsButPods returns the reads of all objects except pods.
func kindsButPods(ctx context.Context, c Clients, s *explain.Snapshot, missing *kinds) []func() error {
	core, all := c.Kube.CoreV1(), metav1.NamespaceAll
	return []func() error{
		func() error {
			return list(ctx, "nodes", core.Nodes().List, func(l *corev1.NodeList) { s.Nodes = grow(s.Nodes, l.Items) })
		},
		func() error {
			return list(ctx, "namespaces", core.Namespaces().List, func(l *corev1.NamespaceList) { s.Namespaces = grow(s.Namespaces, l.Items) })
		},
		func() error {
			return list(ctx, "services", core.Services(all).List, func(l *corev1.ServiceList) { s.Services = grow(s.Services, l.Items) })
		},
		func() error {
			return list(ctx, "endpointslices.discovery.k8s.io", c.Kube.DiscoveryV1().EndpointSlices(all).List,
				func(l *discoveryv1.EndpointSliceList) { s.EndpointSlices = grow(s.EndpointSlices, l.Items) })
		},
		func() error {
			return missing.note(egressIPs, listEgressIPs(ctx, c, func(e *ipv1.EgressIP) { s.EgressIPs = append(s.EgressIPs, e) }))
		},
		func() error {
			return missing.note(egressServices, list(ctx, egressServices, c.Services.EgressServiceV1().EgressServices(all).List,
				func(l *servicev1.EgressServiceList) { s.EgressServices = grow(s.EgressServices, l.Items) }))
		},
		func() error {
			return missing.note(routes, list(ctx, routes, c.Routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().List,
				func(l *routev1.AdminPolicyBasedExternalRouteList) { s.Routes = grow(s.Routes, l.Items) }))
		},
	}
}

// together runs reads concurrently, and returns the error of the first failing read in their
// order, so that the result is deterministic.
func together(reads []func() error) error {
	errs := make([]error, len(reads))
	var wait sync.WaitGroup
	for i, read := range reads {
		wait.Go(func() { errs[i] = read() })
	}
	wait.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}

// noteMissing adds notes about the kinds that the API server does not have.
func noteMissing(s *explain.Snapshot, missing *kinds) {
	on := &s.Settings
	off := func(kind string, enabled bool) bool {
		if !missing.has(kind) || !enabled {
			return false
		}
		s.Notes = append(s.Notes, "the API server has no "+kind+": the CustomResourceDefinition is not installed, and there are none")
		return true
	}
	on.EgressIP = on.EgressIP && !off(egressIPs, on.EgressIP)
	on.EgressService = on.EgressService && !off(egressServices, on.EgressService)
	off(routes, on.ExternalGateways) // annotations still work
}

// The kinds of objects that are defined by a CustomResourceDefinition.
const (
	egressIPs      = "egressips.k8s.ovn.org"
	egressServices = "egressservices.k8s.ovn.org"
	routes         = "adminpolicybasedexternalroutes.k8s.ovn.org"
)

// kinds are the kinds that the API server does not have.
type kinds struct {
	mu  sync.Mutex
	all []string
}

// note returns the error of reading a kind, or nil if the API server does not have the kind: then
// there are no objects.
func (k *kinds) note(kind string, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, kind)
	return nil
}

func (k *kinds) has(kind string) bool { return slices.Contains(k.all, kind) }

// list reads a resource. It requests all objects at once, which the API server has in its cache.
// It serves pages from the cache only if something has changed in the last minutes,
// and otherwise from etcd, which takes the API server five times as long.
func list[L metav1.ListInterface](ctx context.Context, resource string, get func(context.Context, metav1.ListOptions) (L, error), add func(L)) error {
	var options metav1.ListOptions
	for {
		l, err := get(ctx, options)
		switch {
		case apierrors.IsForbidden(err):
			return fmt.Errorf("you may not list %s: have the ClusterRole egress-reader bound to you: %w", resource, err)
		case apierrors.IsResourceExpired(err) && options.Continue != "":
			return fmt.Errorf("list %s: it took too long, try again: %w", resource, err)
		case err != nil:
			return fmt.Errorf("list %s: %w", resource, err)
		}
		add(l)
		if options.Continue = l.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// grow adds the items of a page, without their managed fields, which are often as
// large as all the rest.
func grow[T any, O interface {
	*T
	metav1.Object
}](all []O, items []T) []O {
	for i := range items {
		o := O(&items[i])
		o.SetManagedFields(nil)
		all = append(all, o)
	}
	return all
}

// readOwn reads the objects in the namespace of ovnkube.
func readOwn(ctx context.Context, c kubernetes.Interface, namespace string, settings Settings, s *explain.Snapshot) error {
	var note string
	var err error
	if s.Settings, note, err = settings(ctx, c, namespace); err != nil {
		return err
	}
	if note != "" {
		s.Notes = append(s.Notes, note)
	}
	l, err := c.CoordinationV1().Leases(namespace).Get(ctx, lease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		s.Notes = append(s.Notes, fmt.Sprintf("master: Lease %s/%s cannot be read (%s); whether a master runs is not known", namespace, lease, apierrors.ReasonForError(err)))
	case err != nil:
		return fmt.Errorf("get lease %s/%s: %w", namespace, lease, err)
	case l.Spec.RenewTime != nil:
		s.Renewed = l.Spec.RenewTime.Time
	}
	return readReachability(ctx, c, namespace, s)
}

// readReachability reads the probe results that the master has published.
func readReachability(ctx context.Context, c kubernetes.Interface, namespace string, s *explain.Snapshot) error {
	note := func(why any) {
		s.Notes = append(s.Notes, fmt.Sprintf("reachability: ConfigMap %s/%s cannot be read (%v); what the probes of the master say is not known",
			namespace, reachability.ConfigMap, why))
	}
	object, err := c.CoreV1().ConfigMaps(namespace).Get(ctx, reachability.ConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // no master has probed any node yet
		return nil
	case apierrors.IsForbidden(err):
		note(apierrors.ReasonForError(err))
		return nil
	case err != nil:
		return fmt.Errorf("get configmap %s/%s: %w", namespace, reachability.ConfigMap, err)
	}
	report, err := reachability.Decode(object.Data[reachability.Key])
	if err != nil {
		note(err)
		return nil
	}
	s.Reachability = &report
	return nil
}
