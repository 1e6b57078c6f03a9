package master_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service/master"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	benchServices  = 1000
	benchEndpoints = 10
)

// benchSnapshot returns one of many Services, with pods as endpoints.
func benchSnapshot(i int, kind corev1.ServiceType) service.Snapshot {
	name := fmt.Sprintf("svc-%d", i)
	s := object(name, at(fmt.Sprintf("10.96.%d.%d", 1+i>>8, i&0xff)))
	s.Spec.Type = kind
	s.Spec.Ports[0].NodePort = 0
	if kind == corev1.ServiceTypeLoadBalancer {
		s.Spec.Ports[0].NodePort = int32(30000 + i)
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("5.5.%d.%d", 1+i>>8, i&0xff)}}
	}
	var endpoints []string
	for j := range benchEndpoints {
		n := i*benchEndpoints + j
		endpoints = append(endpoints, fmt.Sprintf("10.244.%d.%d@n%d", n>>8&0xff, n&0xff, n%benchNodes))
	}
	return service.Snapshot{Service: s, Slices: []*discoveryv1.EndpointSlice{sliceObject(name, endpoints)}}
}

// benchNodes is how many nodes the cluster has; rows do not depend on it.
const benchNodes = 3

func benchObjects(kind corev1.ServiceType) (objects []runtime.Object, rows map[nb.Owner][]nb.Row) {
	var nodes service.Nodes
	for i := range benchNodes {
		n := nodeObject(fmt.Sprintf("n%d", i), topology.GatewayShared)
		objects = append(objects, n)
		nodes, _ = nodes.With(n.Name, &service.NodeFacts{Switch: true, Gateway: true, Shared: true, IPv4: netip.MustParseAddr("172.18.0.2")})
	}
	rows = map[nb.Owner][]nb.Row{}
	for i := range benchServices {
		snap := benchSnapshot(i, kind)
		objects = append(objects, snap.Service, snap.Slices[0])
		s, ok := service.Decode(snap, config)
		if ok {
			rows[service.Owner(s.Key)] = service.MasterRows(s, config, nodes)
		}
	}
	return objects, rows
}

// benchDatabase starts a fresh database with the load balancer groups.
func benchDatabase(b *testing.B) (*ovsdbtest.Server, *ovsdb.Writer, func()) {
	b.Helper()
	s := ovsdbtest.StartNB(b)
	ctx, cancel := context.WithTimeout(b.Context(), eventually.Bound)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: s.Socket()})
	if err != nil {
		b.Fatal(err)
	}
	w := ovsdb.NewWriter(client)
	var groups []nb.Row
	for _, g := range []string{topology.ClusterLBGroup, topology.ClusterSwitchLBGroup} {
		groups = append(groups, nb.Row{ID: g, Model: &nbdb.LoadBalancerGroup{Name: g}})
	}
	if _, err := w.Apply(ctx, nb.Owner{Feature: "network"}, groups); err != nil {
		b.Fatal(err)
	}
	return s, w, func() {
		client.Close()
		s.Kill()
	}
}

// serve runs the controller on objects until all of them are written, and returns how long
// that took after its informers had synced.
func serve(b *testing.B, w *ovsdb.Writer, objects []runtime.Object) (took time.Duration, stop func()) {
	b.Helper()
	factory := informers.NewSharedInformerFactory(fakeapi.NewClientset(objects...), 0)
	c, err := master.New(master.Deps{
		Services:       factory.Core().V1().Services(),
		EndpointSlices: factory.Discovery().V1().EndpointSlices(),
		Nodes:          factory.Core().V1().Nodes(),
		Pods:           factory.Core().V1().Pods(),
		Writer:         w,
		Config:         config,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- c.Run(ctx) }()
	<-c.Attempted()
	took = time.Since(start)
	return took, func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		factory.Shutdown()
	}
}

// BenchmarkServices serves 1,000 Services with ten endpoints each from scratch, including
// queue, planning and writing, and compares that with one raw transaction of the same rows,
// on a server without and with a monitoring client: x-raw is the ratio to the former, each
// the best of all rounds.
func BenchmarkServices(b *testing.B) {
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer} {
		b.Run(string(kind), func(b *testing.B) {
			objects, rows := benchObjects(kind)
			n := 0
			for _, list := range rows {
				n += len(list)
			}
			raw, monitored, ours := time.Hour, time.Hour, time.Hour
			for range b.N {
				s, w, stop := benchDatabase(b)
				took, end := serve(b, w, objects)
				ours = min(ours, took)
				if got := strings.Count(s.Nbctl("--bare", "--columns=name", "list", nbdb.LoadBalancerTable), "Service_ns/"); got != n {
					b.Fatalf("%d load balancers, want %d", got, n)
				}
				end()
				raw, monitored = min(raw, s.Bulk(false)), min(monitored, s.Bulk(true))
				stop()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(n), "rows")
			b.ReportMetric(raw.Seconds()*1000, "raw-ms")
			b.ReportMetric(monitored.Seconds()*1000, "monitored-ms")
			b.ReportMetric(ours.Seconds()*1000, "all-ms")
			b.ReportMetric(float64(ours)/float64(raw), "x-raw")
		})
	}
}

// BenchmarkServicesEndpoint adds and removes one of ten endpoints in a cluster with 1,000
// Services: one transaction of one row each.
func BenchmarkServicesEndpoint(b *testing.B) {
	objects, rows := benchObjects(corev1.ServiceTypeClusterIP)
	_, w, stop := benchDatabase(b)
	defer stop()
	_, end := serve(b, w, objects)
	end()
	snap := benchSnapshot(0, corev1.ServiceTypeClusterIP)
	all := snap.Slices[0].Endpoints
	owner := service.Owner("ns/" + snap.Service.Name)
	if len(rows[owner]) != 1 {
		b.Fatalf("%d rows", len(rows[owner]))
	}
	b.ResetTimer()
	for i := range b.N {
		snap.Slices[0].Endpoints = all[i%2^1:]
		s, _ := service.Decode(snap, config)
		stats, err := w.Apply(b.Context(), owner, service.MasterRows(s, config, nil))
		if err != nil || stats != (nb.Stats{Updated: 1}) {
			b.Fatalf("%+v, %v", stats, err)
		}
	}
}
