package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestFeatureCleanup: the rows and reports of a disabled feature are removed, even if the first attempt fails.
func TestFeatureCleanup(t *testing.T) {
	writer := nbfake.New()
	if _, err := writer.Apply(t.Context(), nb.Owner{Feature: egressservice.Feature, Object: "default/demo"}, []nb.Row{{Model: &nbdb.AddressSet{Name: "demo"}}}); err != nil {
		t.Fatal(err)
	}
	var attempts atomic.Int32
	r := &featureCleanup{feature: egressservice.Feature, writer: writer, retire: func(context.Context) error {
		if attempts.Add(1) == 1 {
			return errors.New("no connection")
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	eventually.True(t, "the reports to be removed", func() bool { return attempts.Load() == 2 && len(nb.Objects(writer, egressservice.Feature)) == 0 })
	cancel()
	if err := eventually.Receive(t, "the end", done); err != nil {
		t.Error(err)
	}
}
