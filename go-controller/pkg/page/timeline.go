package page

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
)

// KindTimeline is the kind of the answer about the timeline.
const KindTimeline = "EgressTimeline"

// Timeline is the answer about past events, the latest first.
type Timeline struct {
	explain.Header `json:",inline"`
	// Total is the number of known entries.
	Total   int     `json:"total"`
	Entries []Entry `json:"entries"`
}

// Entry is a past event.
type Entry struct {
	Time metav1.Time `json:"time"`
	// Object is the object that it is about: "EgressIP/prod", "Node/ovn-worker".
	Object string `json:"object"`
	// Reason is the reason of the Event, or one of this package.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	Warning bool   `json:"warning,omitempty"`
	// Address, From and To are set for changes that this server has seen in the statuses itself: the address moved
	// from one node to another between two reads.
	Address string `json:"address,omitempty"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
}

// Reasons of entries without an Event.
const (
	// ReasonObserved: the node of an address has changed.
	ReasonObserved = "NodeChanged"
	// ReasonReady: a node became Ready.
	ReasonReady = "NodeReady"
	// ReasonNotReady: a node is no longer Ready.
	ReasonNotReady = "NodeNotReady"
)

const (
	// maxObserved is the maximum number of changes that are kept.
	maxObserved = 1000
	// nodeHistory is how long changes of nodes are shown.
	nodeHistory = 24 * time.Hour
	// slack is how far apart the time of an Event and the time at which its change was observed may be: clocks
	// differ, and Events arrive a little later.
	slack = time.Minute
)

// observations are changes that were seen between reads.
type observations struct {
	last map[site]string // nodes by address; nil before the first read
	at   time.Time
	seen []Entry // the latest last
}

// site identifies an address of an object.
type site struct{ object, address string }

// see compares objects with the previous read.
func (o *observations) see(objects []explain.Object, now time.Time) {
	is := map[site]string{}
	for _, obj := range objects {
		for _, a := range obj.Addresses {
			at := site{obj.Object, a.Address}
			is[at] = a.Node
			if was := o.last[at]; o.last != nil && was != a.Node {
				o.seen = append(o.seen, observed(at, was, a.Node, now))
			}
		}
	}
	var gone []site
	for at, was := range o.last {
		if _, still := is[at]; !still && was != "" {
			gone = append(gone, at)
		}
	}
	slices.SortFunc(gone, func(a, b site) int { return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.address, b.address)) })
	for _, at := range gone {
		o.seen = append(o.seen, observed(at, o.last[at], "", now))
	}
	o.last, o.at = is, now
	o.seen = slices.Clone(o.seen[max(0, len(o.seen)-maxObserved):])
}

func observed(at site, from, to string, now time.Time) Entry {
	what := at.address
	if what == "" {
		what = "egress traffic"
	}
	e := Entry{Time: metav1.NewTime(now), Object: at.object, Reason: ReasonObserved, Address: at.address, From: from, To: to}
	switch {
	case from == "":
		e.Message = what + " was on no node, and is assigned to " + to
	case to == "":
		e.Message = what + " was assigned to " + from + ", and is on no node"
	default:
		e.Message = what + " was assigned to " + from + ", and is assigned to " + to
	}
	return e
}

// entries returns the timeline, the latest first. If an Event describes an observed change, the Event is shown
// instead.
func entries(f Facts, nodes []explain.NodeStatus, seen []Entry) []Entry {
	var all []Entry
	events := map[string][]Entry{}
	for _, e := range f.Events {
		entry := ofEvent(e)
		all = append(all, entry)
		events[entry.Object] = append(events[entry.Object], entry)
	}
	for _, e := range seen {
		if !slices.ContainsFunc(events[e.Object], e.isDescribedBy) {
			all = append(all, e)
		}
	}
	for _, n := range nodes {
		if n.Since == nil || f.Snapshot.Taken.Sub(n.Since.Time) > nodeHistory {
			continue
		}
		e := Entry{Time: *n.Since, Object: "Node/" + n.Node, Reason: ReasonReady, Message: "the node became Ready"}
		if !n.Ready {
			e.Reason, e.Message, e.Warning = ReasonNotReady, "the node ceased to be Ready", true
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b Entry) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Message, b.Message))
	})
	return all
}

// isDescribedBy reports whether an Event is about the same change.
func (e Entry) isDescribedBy(event Entry) bool {
	node := e.To
	if node == "" {
		node = e.From
	}
	words := strings.FieldsFunc(event.Message, func(r rune) bool { return strings.ContainsRune(" ,;", r) })
	for i, w := range words {
		words[i] = strings.TrimRight(w, ".:")
	}
	// All addresses of an EgressService have the same node, and there is one Event for them.
	about := strings.HasPrefix(e.Object, "EgressService/") || slices.Contains(words, e.Address)
	return e.Time.Sub(event.Time.Time).Abs() <= slack && about && slices.Contains(words, node)
}

func ofEvent(e *corev1.Event) Entry {
	at := e.LastTimestamp
	if at.IsZero() {
		at = metav1.NewTime(e.EventTime.Time)
	}
	if at.IsZero() {
		at = e.FirstTimestamp
	}
	name := e.InvolvedObject.Name
	if e.InvolvedObject.Namespace != "" {
		name = e.InvolvedObject.Namespace + "/" + name
	}
	return Entry{Time: at, Object: e.InvolvedObject.Kind + "/" + name, Reason: e.Reason, Message: e.Message, Warning: e.Type == corev1.EventTypeWarning}
}
