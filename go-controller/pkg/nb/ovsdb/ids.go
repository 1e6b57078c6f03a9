package ovsdb

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// The external_ids that make a row ours.
const (
	controllerKey = "k8s.ovn.org/owner-controller"
	featureKey    = "k8s.ovn.org/owner-type"
	objectKey     = "k8s.ovn.org/name"
	// rowKey holds the row ID and, after an @, the name of the parent.
	rowKey = "k8s.ovn.org/id"

	// ourPrefix is the prefix of all our keys.
	ourPrefix = "k8s.ovn.org/"

	// controllerName is the value of controllerKey. Rows of other programs that
	// use the same scheme have another one and are foreign.
	controllerName = "ovnkube"
)

// ownerOf returns the owner in a row's external_ids; ok is false for foreign rows.
func ownerOf(ids map[string]string) (owner nb.Owner, ok bool) {
	if ids[controllerKey] != controllerName {
		return nb.Owner{}, false
	}
	return nb.Owner{Feature: ids[featureKey], Object: ids[objectKey]}, true
}

// wantedIDs returns the external_ids that a row must have: ours and the planner's.
func wantedIDs(t *table, o nb.Owner, row nb.Row, planner map[string]string) (map[string]string, error) {
	ids := make(map[string]string, len(planner)+4)
	for k, v := range planner {
		if isForeignKey(k) || strings.HasPrefix(k, ourPrefix) {
			return nil, fmt.Errorf("external_ids key %q cannot be planned", k)
		}
		ids[k] = v
	}
	ids[controllerKey] = controllerName
	ids[featureKey] = o.Feature
	ids[objectKey] = o.Object
	ids[rowKey] = row.ID
	if len(t.Parents) > 0 {
		if strings.Contains(row.Parent.Name, "@") {
			return nil, fmt.Errorf("parent name %q has an @", row.Parent.Name)
		}
		ids[rowKey] += "@" + row.Parent.Name
		if t.root && row.Parent.Name != "" { // several tables may hold parents
			ids[rowKey] += "@" + row.Parent.Table
		}
	}
	return ids, nil
}

// placeOf returns a row's ID and parent from its external_ids.
func placeOf(t *table, ids map[string]string) (id string, parent nb.Parent) {
	id = ids[rowKey]
	if len(t.Parents) == 0 {
		return id, parent
	}
	for parent.Table = range t.Parents {
		break // the only one
	}
	if t.root {
		parent.Table = ""
		if i := strings.LastIndexByte(id, '@'); i >= 0 && t.Parents[id[i+1:]] != "" {
			id, parent.Table = id[:i], id[i+1:]
		}
	}
	if i := strings.LastIndexByte(id, '@'); i >= 0 {
		id, parent.Name = id[:i], id[i+1:]
	}
	return id, parent
}

// isForeignKey reports whether a key on a row of ours was set by someone else: it has a
// prefix that is not ours, such as "neutron:revision". Such keys stay. Planners' keys,
// which are a public interface, have no prefix.
func isForeignKey(key string) bool {
	return strings.ContainsAny(key, ":/") && !strings.HasPrefix(key, ourPrefix)
}

// idChange returns what to delete from and insert into the external_ids of a row so that
// they become want. Foreign keys stay. Both are empty if nothing has to change.
func idChange(have, want map[string]string) (remove []string, insert map[string]string) {
	if maps.Equal(have, want) {
		return nil, nil
	}
	insert = map[string]string{}
	for k := range have {
		if _, ok := want[k]; !ok && !isForeignKey(k) {
			remove = append(remove, k)
		}
	}
	for k, v := range want {
		old, ok := have[k]
		if ok && old == v {
			continue
		}
		if ok {
			remove = append(remove, k) // an insert does not overwrite
		}
		insert[k] = v
	}
	slices.Sort(remove)
	return remove, insert
}
