package ovsdb

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestApplyAllOrder: the owners that ApplyAll splits into several transactions are always in the same order: a pod's policies and
// its port are next to each other, the policies first, and rows that yield come last.
func TestApplyAllOrder(t *testing.T) {
	w := &Writer{client: &Client{ctx: t.Context()}, requests: make(chan []*request)}
	want := map[nb.Owner][]nb.Row{{Feature: "pod", Object: "ns/0"}: {{Yields: true}}}
	var order []string
	for i := range 20 {
		object := fmt.Sprintf("ns/%02d", i)
		for _, feature := range []string{"egressip", "pod"} {
			want[nb.Owner{Feature: feature, Object: object}] = nil
			order = append(order, feature+"/"+object)
		}
	}
	order = append(order, "pod/ns/0")
	go w.ApplyAll(t.Context(), want)
	var got []string
	for _, r := range eventually.Receive(t, "the requests", w.requests) {
		got = append(got, r.owner.String())
		r.finish(nil)
	}
	if !slices.Equal(got, order) {
		t.Errorf("order %v\nwant %v", got, order)
	}
}
