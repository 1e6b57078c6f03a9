package plane

import (
	"context"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbraw"
)

// Raw writes all rows of the northbound database into an empty one, as one transaction of
// a client that does nothing else, and returns how long the server took and the number of
// rows: this is a lower bound for any client.
func (p *Plane) Raw(ctx context.Context) (took time.Duration, rows int, err error) {
	from, err := p.Dial(ctx, Northbound, nil)
	if err != nil {
		return 0, 0, err
	}
	defer from.Close()
	tables, err := from.Rows(ctx, Northbound, "NB_Global")
	if err != nil {
		return 0, 0, err
	}
	for _, list := range tables {
		rows += len(list)
	}
	transaction, err := ovsdbraw.Prepare(Northbound, ovsdbraw.Inserts(tables)...)
	if err != nil {
		return 0, 0, err
	}
	server, err := p.startDatabase(ctx, "raw", "nb")
	if err != nil {
		return 0, 0, err
	}
	defer p.forget(server, server.Kill)
	to, err := p.dialSocket(ctx, "raw.sock", nil)
	if err != nil {
		return 0, 0, err
	}
	defer to.Close()
	began := time.Now()
	_, err = to.Send(ctx, transaction)
	return time.Since(began), rows, err
}
