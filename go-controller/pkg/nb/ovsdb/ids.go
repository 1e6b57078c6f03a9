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
	rowKey        = "k8s.ovn.org/id"
	// parentKey holds the table and name of the row that references this one.
	parentKey = "k8s.ovn.org/parent"
	// plannedKey lists the external_ids that the planner gave, so that one it
	// stops giving is removed while keys that others put on the row stay.
	plannedKey = "k8s.ovn.org/keys"

	// controllerName is the value of controllerKey. Rows of other programs that
	// use the same scheme have another one and are foreign.
	controllerName = "ovnkube"
)

// ownerOf returns the owner and row id in a row's external_ids; ok is false for
// foreign rows.
func ownerOf(ids map[string]string) (owner nb.Owner, id string, ok bool) {
	if ids[controllerKey] != controllerName {
		return nb.Owner{}, "", false
	}
	return nb.Owner{Feature: ids[featureKey], Object: ids[objectKey]}, ids[rowKey], true
}

// wantedIDs returns the external_ids a row must have: ours and the planner's.
func wantedIDs(o nb.Owner, row nb.Row, planner map[string]string) (map[string]string, error) {
	ids := make(map[string]string, len(planner)+6)
	for k, v := range planner {
		if strings.Contains(k, ",") || isOurKey(k) {
			return nil, fmt.Errorf("external_ids key %q cannot be planned", k)
		}
		ids[k] = v
	}
	if len(planner) > 0 {
		ids[plannedKey] = strings.Join(slices.Sorted(maps.Keys(planner)), ",")
	}
	ids[controllerKey] = controllerName
	ids[featureKey] = o.Feature
	ids[objectKey] = o.Object
	ids[rowKey] = row.ID
	if row.Parent != (nb.Parent{}) {
		ids[parentKey] = row.Parent.Table + "/" + row.Parent.Name
	}
	return ids, nil
}

// parentOf is the parent noted in a row's external_ids.
func parentOf(ids map[string]string) nb.Parent {
	table, name, _ := strings.Cut(ids[parentKey], "/")
	return nb.Parent{Table: table, Name: name}
}

func isOurKey(key string) bool {
	switch key {
	case controllerKey, featureKey, objectKey, rowKey, parentKey, plannedKey:
		return true
	}
	return false
}

// managedIDs returns the part of a row's external_ids that the writer answers
// for: its own keys and those a planner gave.
func managedIDs(ids map[string]string) map[string]string {
	planned := strings.Split(ids[plannedKey], ",")
	managed := make(map[string]string, len(ids))
	for k, v := range ids {
		if isOurKey(k) || slices.Contains(planned, k) {
			managed[k] = v
		}
	}
	return managed
}

// idChange returns what to delete from and insert into the external_ids of a
// row so that its managed part becomes want and the rest stays. Both are empty
// if nothing is to be done.
func idChange(have, want map[string]string) (remove []string, insert map[string]string) {
	insert = map[string]string{}
	for k := range managedIDs(have) {
		if _, ok := want[k]; !ok {
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
