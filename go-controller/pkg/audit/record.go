package audit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// APIVersion is the version of the schema of records and answers. Fields and types may be added to it; existing
// ones keep their names and meaning.
const APIVersion = "egress.ovnkube/v1"

// Type is the type of a record.
type Type string

// Types of records.
const (
	// TypeStarted: a master has started to lead.
	TypeStarted Type = "Started"
	// TypeFound: an assignment or a pod exists; the leader found it when it started to lead, or had it when it
	// started a file.
	TypeFound Type = "Found"
	// TypeComplete: nothing exists besides what the leader has stated.
	TypeComplete Type = "Complete"
	// TypeLost: records could not be written; the current state is stated again.
	TypeLost Type = "Lost"
	// TypeAssigned: a node has been assigned an address.
	TypeAssigned Type = "Assigned"
	// TypeReleased: the address is no longer assigned to a node.
	TypeReleased Type = "Released"
	// TypePodAdded: a pod leaves with an address.
	TypePodAdded Type = "PodAdded"
	// TypePodRemoved: a pod no longer leaves with an address.
	TypePodRemoved Type = "PodRemoved"
)

// types are all types; true for those that are about an address.
var types = map[Type]bool{
	TypeStarted: false, TypeComplete: false, TypeLost: false,
	TypeFound: true, TypeAssigned: true, TypeReleased: true, TypePodAdded: true, TypePodRemoved: true,
}

// Reasons that no condition or Event uses.
const (
	// ReasonObjectDeleted: the object was deleted.
	ReasonObjectDeleted = "ObjectDeleted"
	// ReasonAddressRemoved: the object no longer requests the address.
	ReasonAddressRemoved = "AddressRemoved"
	// ReasonPodDeleted: the pod was deleted.
	ReasonPodDeleted = "PodDeleted"
	// ReasonNotSelected: the object no longer selects the pod.
	ReasonNotSelected = "NotSelected"
)

// Record is one line of the log.
type Record struct {
	// APIVersion is the version of the schema.
	APIVersion string `json:"apiVersion"`
	// Time is when the leader knew that the change had been written.
	Time time.Time `json:"time"`
	// Leader is the name of the master that wrote the record.
	Leader string `json:"leader"`
	// Term is when that master started to lead.
	Term time.Time `json:"term"`
	// Sequence numbers the records of the term, from 1.
	Sequence int64 `json:"sequence"`
	// Type is the type of the record.
	Type Type `json:"type"`
	// Object is what assigns the address; absent if the record is about no object.
	Object *Object `json:"object,omitempty"`
	// Family is the address family, IPv4 or IPv6.
	Family string `json:"family,omitempty"`
	// Address is the egress address; absent if the node's routes decide.
	Address string `json:"address,omitempty"`
	// From is the node that had the address before.
	From string `json:"from,omitempty"`
	// To is the node that has the address; ALL if every node serves its own pods.
	To string `json:"to,omitempty"`
	// Pod is the pod that leaves with the address; absent if the record is about the node.
	Pod *Pod `json:"pod,omitempty"`
	// Reason is the reason of the Event or condition.
	Reason string `json:"reason,omitempty"`
	// Message gives details.
	Message string `json:"message,omitempty"`
}

// Object is an object that assigns addresses.
type Object struct {
	// Kind is EgressIP or EgressService.
	Kind string `json:"kind"`
	// Namespace is absent for cluster-scoped kinds.
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the object.
	Name string `json:"name"`
	// UID is absent if the object was gone before anything recorded it.
	UID string `json:"uid,omitempty"`
}

// String returns "EgressIP/prod" or "EgressService/shop/checkout".
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// Pod is a pod with one of its addresses.
type Pod struct {
	// Namespace is the namespace of the pod.
	Namespace string `json:"namespace"`
	// Name is the name of the pod.
	Name string `json:"name"`
	// UID is absent if the pod was gone before anything recorded it.
	UID string `json:"uid,omitempty"`
	// Address is the pod's own address.
	Address string `json:"address"`
	// Node is the node that the pod runs on.
	Node string `json:"node,omitempty"`
}

// Key returns "namespace/name".
func (p Pod) Key() string { return p.Namespace + "/" + p.Name }

// validate returns why a record cannot be used, or nil if it can.
func (r Record) validate() error {
	about, known := types[r.Type]
	switch {
	case r.APIVersion != APIVersion:
		return fmt.Errorf("apiVersion %q is not %s", r.APIVersion, APIVersion)
	case !known:
		return fmt.Errorf("unknown type %q", r.Type)
	case r.Leader == "" || r.Term.IsZero() || r.Time.IsZero() || r.Sequence < 1:
		return errors.New("time, leader, term or sequence is missing")
	case !about:
		return nil
	case r.Object == nil || r.Object.Kind == "" || r.Object.Name == "":
		return errors.New("object is missing")
	}
	if r.Address != "" {
		if a, err := netip.ParseAddr(r.Address); err != nil || a.String() != r.Address {
			return fmt.Errorf("address %q is none", r.Address)
		}
	}
	aboutPod := r.Type == TypePodAdded || r.Type == TypePodRemoved
	switch {
	case aboutPod && r.Pod == nil, r.Pod != nil && (r.Pod.Namespace == "" || r.Pod.Name == "" || r.Address == ""):
		return errors.New("pod or address is missing")
	case r.Pod == nil && r.Type != TypeReleased && r.To == "":
		return errors.New("node is missing")
	}
	return nil
}

// Fact is an assignment: a node has an address. If Pod is set, it is instead that the pod leaves with the address.
type Fact struct {
	Object  Object
	Address netip.Addr
	Node    string // of an assignment
	Pod     *Pod
}

// factKey identifies a fact: at most one fact per key holds at a time.
type factKey struct{ kind, namespace, name, address, pod, podAddress string }

func keyOf(o Object, address string, p *Pod) factKey {
	k := factKey{kind: o.Kind, namespace: o.Namespace, name: o.Name, address: address}
	if p != nil {
		k.pod, k.podAddress = p.Key(), p.Address
	}
	return k
}

func (f Fact) key() factKey { return keyOf(f.Object, addressText(f.Address), f.Pod) }

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// record returns a record about a fact.
func (f Fact) record(t Type) Record {
	o := f.Object
	r := Record{Type: t, Object: &o, Address: addressText(f.Address), To: f.Node}
	if f.Address.IsValid() {
		r.Family = topology.FamilyOf(f.Address).String()
	}
	if f.Pod != nil {
		p := *f.Pod
		r.Pod, r.To = &p, ""
	}
	return r
}

// another reports whether two UIDs belong to different objects. An unknown UID matches any.
func another(a, b string) bool { return a != "" && b != "" && a != b }

// replaces reports whether a fact of the same key is about another object or pod.
func (f Fact) replaces(was Fact) bool {
	return another(f.Object.UID, was.Object.UID) || f.Pod != nil && was.Pod != nil && another(f.Pod.UID, was.Pod.UID)
}

// completed returns f, completed with what was known before.
func (f Fact) completed(was Fact) Fact {
	if f.Object.UID == "" {
		f.Object.UID = was.Object.UID
	}
	if f.Pod != nil && was.Pod != nil {
		p := *f.Pod
		if p.UID == "" {
			p.UID = was.Pod.UID
		}
		if p.Node == "" {
			p.Node = was.Pod.Node
		}
		f.Pod = &p
	}
	return f
}

func compareKeys(a, b factKey) int {
	return slices.Compare(
		[]string{a.kind, a.namespace, a.name, a.address, a.pod, a.podAddress},
		[]string{b.kind, b.namespace, b.name, b.address, b.pod, b.podAddress})
}
