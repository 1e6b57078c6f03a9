package nb

import (
	"context"

	"github.com/ovn-org/libovsdb/model"
)

// Owner names the object that a set of rows belongs to: the feature that plans them and the
// object they are planned for, e.g. {"egressservice", "ns/name"}. It is also the work queue
// key.
type Owner struct{ Feature, Object string }

// String returns "feature/object".
func (o Owner) String() string { return o.Feature + "/" + o.Object }

// Parent is the row that holds a reference to a non-root row, found by its
// name column. The zero Parent is for rows of root tables.
type Parent struct {
	Table string // nbdb.LogicalRouterTable, ...
	Name  string // e.g. "ovn_cluster_router"
}

// Ref makes a column of a row refer to another row, of any owner. The row is found by its
// name or, in a table without names, by its unique columns joined with "/":
// "rtoe-GR_node1/172.18.0.9" for a BFD row.
type Ref struct {
	Column string // e.g. "bfd", "load_balancer_group"
	Table  string // table of the row referred to
	Name   string
}

// Row is one wanted row.
type Row struct {
	// ID is unique within owner and table and stable over time, e.g. "10.244.0.5".
	ID string
	// Parent is the row that references this one; zero for root tables.
	Parent Parent
	// Refs are references to other rows, which may be in the same list.
	Refs []Ref
	// Model is a *nbdb.LogicalRouterPolicy or similar. UUID, reference columns and the
	// owner's external_ids are left empty: the writer adds them.
	Model model.Model
	// Yields means that the row is in the database only while no other row has its Slot.
	// The writer swaps the two in one transaction, whichever owner changes.
	Yields bool
}

// Stats counts what an Apply wrote. All zero means that no transaction was sent.
type Stats struct{ Inserted, Updated, Deleted int }

// Zero reports whether nothing was written.
func (s Stats) Zero() bool { return s == Stats{} }

// Writer makes the rows of an owner match the wanted rows exactly.
type Writer interface {
	// Apply diffs want against the rows that o owns and writes the difference in one
	// transaction. Without a difference it sends no transaction. When it returns nil, the
	// rows are in the database and in the writer's cache.
	Apply(ctx context.Context, o Owner, want []Row) (Stats, error)
	// Owners lists the owners of a feature that have rows in the database. They seed the
	// feature's work queue at startup.
	Owners(feature string) []Owner
}

// Database is the Writer that controllers use. It also returns an owner's current rows and
// reports when others change them.
type Database interface {
	Writer
	// ApplyAll is Apply for several owners, in one transaction if possible; it
	// returns the errors by owner.
	ApplyAll(ctx context.Context, want map[Owner][]Row) (Stats, map[Owner]error)
	// OnDrift registers a function that is called with the owner of rows that were changed
	// by someone else.
	OnDrift(f func(Owner))
	// Rows returns the current rows of an owner.
	Rows(o Owner) []Row
}

// Queue is the work queue of a controller. Its keys are the objects of the controller's
// owners.
type Queue interface {
	Seed(keys func() []string)
	Enqueue(keys ...string)
}

// Bind makes q reconcile the owners of a feature that have rows at startup, and those whose
// rows are changed by someone else.
func Bind(q Queue, w Database, feature string) {
	q.Seed(func() []string { return Objects(w, feature) })
	EnqueueDrift(q, w, feature)
}

// Objects lists the objects of a feature that have rows.
func Objects(w Writer, feature string) []string {
	var keys []string
	for _, o := range w.Owners(feature) {
		keys = append(keys, o.Object)
	}
	return keys
}

// EnqueueDrift enqueues the owners of a feature whose rows are changed by someone else.
func EnqueueDrift(q Queue, w Database, feature string) {
	w.OnDrift(func(o Owner) {
		if o.Feature == feature {
			q.Enqueue(o.Object)
		}
	})
}
