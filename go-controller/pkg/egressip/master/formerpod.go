package master

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// A pod may be created again under the same name, with other addresses, while the earlier one still
// sends. The rows of the earlier pod stay as long as those of a deleted one.

// formerPod is an earlier pod of the same name that may still send.
type formerPod struct {
	uid   types.UID
	node  string    // "" if it is unknown
	since time.Time // when we learned that it is gone; zero: there is none
	gone  bool      // its chassis has removed its port
}

// succeed makes the pod of a state the former one, if there is any; the mutex of podStates is held.
func (st *podState) succeed() {
	if st.uid == "" {
		return
	}
	node := st.node
	if before := st.former; !before.since.IsZero() && !before.gone && before.node != node {
		node = "" // two earlier pods may still send, on different nodes
	}
	st.former = formerPod{uid: st.uid, node: node, since: st.left}
	if st.left.IsZero() {
		st.former.since = time.Now()
	}
}

// keptFormer records which rows of a former pod are in the database.
func (st *podState) keptFormer(rows egressip.State) {
	if len(rows.Addrs()) == 0 {
		st.former = formerPod{}
	}
}

// of reports whether a chassis has removed the port of the pod with a UID.
func (r reached) of(uid types.UID) bool { return r.portGone && r.uid == uid }

// rows returns the state of a pod's rows in the database, and that of the rows of earlier pods of
// the same name: a pod keeps its addresses for life.
func (c *Controller) rows(key string, addrs []netip.Addr) (now, earlier egressip.State) {
	var own, others []nb.Row
	for _, r := range c.deps.Writer.Rows(egressip.Owner(key)) {
		text, _, _ := strings.Cut(r.ID, "@")
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(addrs, a) {
			others = append(others, r)
		} else {
			own = append(own, r)
		}
	}
	return egressip.StateOf(own), egressip.StateOf(others)
}

// keepFormer returns those of the earlier pods' rows that have to stay, and arranges for the pod's key to be
// enqueued when that ends.
func (c *Controller) keepFormer(w *work, key string, st *podState, earlier egressip.State) egressip.State {
	if len(earlier.Addrs()) == 0 {
		return earlier
	}
	if st.former.since.IsZero() { // the earlier pod was deleted while no master ran
		st.former.since = time.Now()
	}
	if c.formerGone(st) {
		return egressip.NewState()
	}
	if st.former.node != "" { // its port is gone: the new pod has one
		c.await(w.waits, key, st.former.node, reached{portGone: true, uid: st.former.uid, flushed: true})
	}
	c.pods.EnqueueAfter(podStartTimeout-time.Since(st.former.since), key)
	return earlier
}

// formerGone reports whether no former pod can send any more, as far as we can tell.
func (c *Controller) formerGone(st *podState) bool {
	f := st.former
	if f.since.IsZero() || f.gone || time.Since(f.since) >= podStartTimeout || c.podStates.portRemoved(st, f.uid) {
		return true
	}
	if f.node == "" {
		return false
	}
	_, gone := c.chassis(f.node)
	return gone
}
