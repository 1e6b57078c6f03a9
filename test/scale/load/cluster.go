package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	routeclient "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned"
	serviceclient "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned"
	ipclient "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/test/scale/plane"
)

// workers is how many objects are created concurrently.
const workers = 24

// Clients write objects.
type Clients struct {
	Kube     kubernetes.Interface
	Services serviceclient.Interface
	IPs      ipclient.Interface
	Routes   routeclient.Interface
}

// NewClients creates clients for all kinds.
func NewClients(rc *rest.Config) (Clients, error) {
	var c Clients
	var err error
	if c.Kube, err = kubernetes.NewForConfig(kube.Protobuf(rc)); err != nil {
		return c, err
	}
	if c.Services, err = serviceclient.NewForConfig(rc); err != nil {
		return c, err
	}
	if c.IPs, err = ipclient.NewForConfig(rc); err != nil {
		return c, err
	}
	c.Routes, err = routeclient.NewForConfig(rc)
	return c, err
}

// attempts is how often a creation is tried if the API server takes too long, as on a machine
// with other work.
const attempts = 5

// each calls f for 0 to n-1, some concurrently. It is no error if the object that f creates exists.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(workers)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		all.Go(func() (err error) {
			for range attempts {
				if err = f(ctx, i); !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) {
					return err
				}
			}
			return err
		})
	}
	return all.Wait()
}

// created returns the error of a creation, unless the object exists already.
func created(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// InstallCRDs installs the CRDs in a directory, and
// waits until the API server serves them.
func (c Clients) InstallCRDs(ctx context.Context, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no definitions of our kinds in %s", dir)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			text, err = yaml.YAMLToJSON(text)
		}
		if err == nil {
			err = c.Kube.CoreV1().RESTClient().Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
				SetHeader("Content-Type", "application/json").Body(text).Do(ctx).Error()
		}
		// On a busy machine a response may be lost, and the request repeated.
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("install %s: %w", file, err)
		}
	}
	return plane.Until(ctx, "our kinds to be served", func() error {
		_, err := c.IPs.EgressIPV1().EgressIPs().List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			_, err = c.Services.EgressServiceV1().EgressServices("").List(ctx, metav1.ListOptions{Limit: 1})
		}
		if err == nil {
			_, err = c.Routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().List(ctx, metav1.ListOptions{Limit: 1})
		}
		return err
	})
}

// groupOf is a group of pods in a namespace.
type groupOf struct {
	name string
	pods int
}

func (s Size) groups() []groupOf {
	groups := []groupOf{{SpareService, max(s.Endpoints, 1)}, {SpareIP, max(s.EgressIPPods, 1)}, {SparePolicy, max(s.PolicyPods, 1)}}
	rest := s.Plain
	for _, g := range groups {
		rest -= g.pods
	}
	groups = append(groups, groupOf{Plain, rest})
	for _, kind := range []struct {
		name      string
		n, podsOf int
	}{{kindService, s.EgressServices, s.Endpoints}, {kindIP, s.EgressIPs, s.EgressIPPods}, {kindPolicy, s.Policies, s.PolicyPods}} {
		for i := range kind.n {
			groups = append(groups, groupOf{group(kind.name, i), kind.podsOf})
		}
	}
	return groups
}

// MakeNode creates a node.
func (c Clients) MakeNode(ctx context.Context, s Size, i int) error {
	want := s.node(i)
	n, err := c.Kube.CoreV1().Nodes().Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make node %s: %w", want.Name, err)
	}
	n.Status = want.Status
	if _, err := c.Kube.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("make node %s ready: %w", want.Name, err)
	}
	return nil
}

// systemNamespace is the namespace of ovnkube.
const systemNamespace = "ovn-kubernetes"

// MakeBase creates nodes, namespaces and pods.
func (c Clients) MakeBase(ctx context.Context, s Size) error {
	if _, err := c.Kube.CoreV1().Namespaces().Create(ctx, namespace(systemNamespace), metav1.CreateOptions{}); created(err) != nil {
		return fmt.Errorf("make the namespace of the lease: %w", err)
	}
	if err := each(ctx, s.Nodes, func(ctx context.Context, i int) error { return c.MakeNode(ctx, s, i) }); err != nil {
		return err
	}
	groups := s.groups()
	var pods []*corev1.Pod
	for _, g := range groups {
		for i := range g.pods {
			pods = append(pods, Pod(g.name, i, len(pods)%s.Nodes))
		}
	}
	err := each(ctx, len(groups), func(ctx context.Context, i int) error {
		_, err := c.Kube.CoreV1().Namespaces().Create(ctx, namespace(groups[i].name), metav1.CreateOptions{})
		return created(err)
	})
	if err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	return each(ctx, len(pods), func(ctx context.Context, i int) error {
		if _, err := c.Kube.CoreV1().Pods(pods[i].Namespace).Create(ctx, pods[i], metav1.CreateOptions{}); created(err) != nil {
			return fmt.Errorf("make pod: %w", err)
		}
		return nil
	})
}

// MakeService creates a Service with all pods of a group as its endpoints; one of type
// LoadBalancer has the i-th address.
func (c Clients) MakeService(ctx context.Context, group, name string, kind corev1.ServiceType, i int, pods []*corev1.Pod) error {
	svc, err := c.Kube.CoreV1().Services(group).Create(ctx, Service(group, name, kind), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		svc, err = c.Kube.CoreV1().Services(group).Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("make Service: %w", err)
	}
	if kind == corev1.ServiceTypeLoadBalancer {
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ingress(i).String()}}
		if svc, err = c.Kube.CoreV1().Services(group).UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("give Service an address: %w", err)
		}
	}
	if _, err := c.Kube.DiscoveryV1().EndpointSlices(group).Create(ctx, Slice(svc, pods), metav1.CreateOptions{}); created(err) != nil {
		return fmt.Errorf("make endpoints: %w", err)
	}
	return nil
}

// plainEndpoints is how many endpoints Services without any egress feature have.
const plainEndpoints = 2

// MakeFeatures creates Services and the objects of the egress features; podsOf returns the
// pods of a group, which must have their addresses.
func (c Clients) MakeFeatures(ctx context.Context, s Size, podsOf func(group string) []*corev1.Pod) error {
	lb := corev1.ServiceTypeLoadBalancer
	if err := c.MakeService(ctx, SpareService, SpareService, lb, s.EgressServices, podsOf(SpareService)); err != nil {
		return err
	}
	plain := podsOf(Plain)
	return errors.Join(
		each(ctx, s.EgressServices, func(ctx context.Context, i int) error {
			name := group(kindService, i)
			if err := c.MakeService(ctx, name, name, lb, i, podsOf(name)); err != nil {
				return err
			}
			_, err := c.Services.EgressServiceV1().EgressServices(name).Create(ctx, EgressService(name), metav1.CreateOptions{})
			return created(err)
		}),
		each(ctx, s.EgressIPs, func(ctx context.Context, i int) error {
			_, err := c.IPs.EgressIPV1().EgressIPs().Create(ctx, s.EgressIP(IPGroup(i), i), metav1.CreateOptions{})
			return created(err)
		}),
		each(ctx, s.Policies, func(ctx context.Context, i int) error {
			_, err := c.Routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Create(ctx, s.Policy(group(kindPolicy, i), i), metav1.CreateOptions{})
			return created(err)
		}),
		each(ctx, s.Services, func(ctx context.Context, i int) error {
			at := i * plainEndpoints % (len(plain) - plainEndpoints + 1)
			return c.MakeService(ctx, Plain, group("cluster", i), corev1.ServiceTypeClusterIP, 0, plain[at:at+plainEndpoints])
		}),
	)
}
