// Package adopt recognizes what another implementation of the same network has written into the northbound
// database, by the names, priorities and matches that are a public interface, and determines the owner of each row.
//
// It decides nothing else: rows that are marked as ours look like those of an earlier run of ovnkube, and a master
// handles them as at any startup. It keeps what it wants, changes what differs, and, in the same transaction, deletes
// what the object does not need. There is no separate code path.
//
// A row is understood only if its name or match identifies its node, pod or Service, or its external_ids identify
// an object of the features. All other rows are left alone, as are address sets that such rows refer to.
//
// Callers: app reads the rows with nb/ovsdb, and marks them.
package adopt
