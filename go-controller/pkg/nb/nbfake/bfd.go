package nbfake

import (
	"context"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// Report sets the status of the BFD sessions with a destination, as ovn-northd does.
func (w *Writer) Report(destination string, status nbdb.BFDStatus) {
	w.mu.Lock()
	w.reported[destination] = status
	var of []nb.Owner
	for o, rows := range w.owners {
		for _, e := range rows {
			if b, ok := e.row.Model.(*nbdb.BFD); ok && b.DstIP == destination {
				of = append(of, o)
			}
		}
	}
	drift := slices.Clone(w.drift)
	w.mu.Unlock()
	for _, o := range of {
		for _, f := range drift {
			f(o)
		}
	}
}

// RestartBFD records that a BFD session is restarted, unless it is up.
func (w *Writer) RestartBFD(_ context.Context, _, destination string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reported[destination] == nbdb.BFDStatusUp {
		return nil
	}
	w.restarted = append(w.restarted, destination)
	return nil
}

// RestartedBFD returns the destinations of the sessions that were restarted, in order.
func (w *Writer) RestartedBFD() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.restarted)
}
