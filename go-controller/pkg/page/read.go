package page

import (
	"context"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain/reader"
)

// Read reads what the page shows from an API server. namespace is ovnkube's namespace.
func Read(ctx context.Context, c reader.Clients, namespace string, settings reader.Settings, now func() time.Time) (Facts, error) {
	snap, err := reader.Read(ctx, c, namespace, settings)
	if err != nil {
		return Facts{}, err
	}
	events, note, err := reader.Events(ctx, c.Kube)
	if err != nil {
		return Facts{}, err
	}
	if note != "" {
		snap.Notes = append(snap.Notes, note)
	}
	snap.Taken = now()
	return Facts{Snapshot: snap, Events: events}, nil
}
