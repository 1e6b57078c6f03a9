package app

import (
	"context"
	"fmt"
	"io"

	"github.com/ovnkube/ovnkube/go-controller/pkg/adopt"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
)

// Adopt writes to out what another implementation has in the northbound database, and if act is set
// marks the rows that it understands as ours: the next master continues from there as after a
// restart.
func Adopt(ctx context.Context, cfg config.Config, act bool, out io.Writer) error {
	client, err := ovsdb.Connect(ctx, databaseConfig(cfg.OVNNorth))
	if err != nil {
		return err
	}
	defer client.Close()
	rows, err := client.Stored(ctx)
	if err != nil {
		return err
	}
	listing := adopt.List(adopt.Config{MultiExternalGateway: cfg.Features.MultiExternalGateway}, rows)
	listing.Text(out)
	if !act {
		fmt.Fprintln(out, "Nothing was changed.")
		return nil
	}
	n, err := client.Mark(ctx, rows, listing.Marks())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Rows that are ovnkube's from now on: %d\n", n)
	if want := len(listing.Understood); n != want {
		return fmt.Errorf("%d of the rows that were understood were gone when they were marked: somebody else writes to the database", want-n)
	}
	return nil
}
