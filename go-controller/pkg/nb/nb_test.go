package nb_test

import (
	"context"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
)

// keys is a queue that records its calls.
type keys struct {
	seeds    []func() []string
	enqueued []string
}

func (k *keys) Seed(f func() []string)    { k.seeds = append(k.seeds, f) }
func (k *keys) Enqueue(objects ...string) { k.enqueued = append(k.enqueued, objects...) }

// A bound queue starts with the owners of its feature and is told only of drift in rows of
// its feature.
func TestBind(t *testing.T) {
	w, q := nbfake.New(), &keys{}
	owners := []nb.Owner{{Feature: "mine", Object: "a"}, {Feature: "other", Object: "b"}, {Feature: "mine", Object: "c"}}
	for _, o := range owners {
		row := nb.Row{ID: "set", Model: &nbdb.AddressSet{Name: o.Object}}
		if _, err := w.Apply(context.Background(), o, []nb.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	nb.Bind(q, w, "mine")
	var seeded []string
	for _, seed := range q.seeds {
		seeded = append(seeded, seed()...)
	}
	if want := []string{"a", "c"}; !slices.Equal(seeded, want) {
		t.Errorf("seeded with %q, want %q", seeded, want)
	}
	for _, o := range owners {
		if !w.Remove(o, nbdb.AddressSetTable, "set") {
			t.Fatalf("%s has no row to remove", o)
		}
	}
	if want := []string{"a", "c"}; !slices.Equal(q.enqueued, want) {
		t.Errorf("drift enqueued %q, want %q", q.enqueued, want)
	}
}
