package app

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	routeinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/informers/externalversions/adminpolicybasedroute/v1"
	egressipinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/informers/externalversions/egressip/v1"
	egressserviceinformers "github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/metrics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
)

// northbound is the kind of objects that the master repairs in the northbound database.
const northbound = "northbound rows"

// measureNorthbound adds metrics of the rows of the database, and of repairs of our rows.
func measureNorthbound(set *metrics.Set, w *ovsdb.Writer) {
	set.Repaired(func() map[string]uint64 { return map[string]uint64{northbound: w.Repaired()} })
	set.Leader().Rows(func(emit metrics.Emit) {
		for table, n := range w.Sizes() {
			emit(float64(n), table)
		}
	})
}

// transactionObserver returns a function that records transactions in metrics.
func transactionObserver(l *metrics.Leader) func(ovsdb.Transaction) {
	return func(t ovsdb.Transaction) {
		l.Transaction(t.Took, t.Stats.Inserted, t.Stats.Updated, t.Stats.Deleted, t.Err)
	}
}

// measureEgressIPs adds metrics that count EgressIPs by condition, and their addresses by node.
func measureEgressIPs(l *metrics.Leader, in egressipinformers.EgressIPInformer) {
	informer := in.Informer() // before the factory starts
	all := func() []*egressipv1.EgressIP {
		if !informer.HasSynced() {
			return nil
		}
		list, _ := in.Lister().List(labels.Everything()) // reads memory and never fails
		return list
	}
	l.Moves(conditions.EgressIP, egressip.Reasons()...)
	l.Objects(conditions.EgressIP, func(visit func([]metav1.Condition)) {
		for _, e := range all() {
			visit(e.Status.Conditions)
		}
	})
	l.Addresses(func(emit metrics.Emit) {
		assigned, programmed := map[string]int{}, map[string]int{}
		for _, e := range all() {
			for _, item := range e.Status.Items {
				assigned[item.Node]++
				programmed[item.Node] += 0 // also if it holds none yet
			}
			for _, p := range e.Status.Programmed {
				programmed[p.Node] += len(p.EgressIPs)
			}
		}
		for node, n := range assigned {
			emit(float64(n), node, metrics.Assigned)
		}
		for node, n := range programmed {
			emit(float64(n), node, metrics.Programmed)
		}
	})
}

// measureEgressServices adds metrics that count EgressServices by condition and by host.
func measureEgressServices(l *metrics.Leader, in egressserviceinformers.EgressServiceInformer) {
	informer := in.Informer() // before the factory starts
	all := func() []*egressservicev1.EgressService {
		if !informer.HasSynced() {
			return nil
		}
		list, _ := in.Lister().List(labels.Everything()) // reads memory and never fails
		return list
	}
	l.Moves(conditions.EgressService, egressservice.Reasons()...)
	l.Objects(conditions.EgressService, func(visit func([]metav1.Condition)) {
		for _, eg := range all() {
			visit(eg.Status.Conditions)
		}
	})
	l.Hosted(func(emit metrics.Emit) {
		hosted := map[string]int{}
		for _, eg := range all() {
			if host := eg.Status.Host; host != "" && host != egressservicev1.HostAll {
				hosted[host]++
			}
		}
		for node, n := range hosted {
			emit(float64(n), node)
		}
	})
}

// measureExternalGateways adds metrics that count AdminPolicyBasedExternalRoutes by condition.
func measureExternalGateways(l *metrics.Leader, in routeinformers.AdminPolicyBasedExternalRouteInformer) {
	informer := in.Informer() // before the factory starts
	l.Objects(conditions.AdminPolicyBasedExternalRoute, func(visit func([]metav1.Condition)) {
		if !informer.HasSynced() {
			return
		}
		list, _ := in.Lister().List(labels.Everything()) // reads memory and never fails
		for _, p := range list {
			visit(p.Status.Conditions)
		}
	})
}
