// Package adopt recognizes what another implementation of the same network has written
// into the northbound database, by the names, priorities and matches that are public
// interface, and says whose each row is to be.
//
// It decides nothing else: rows that are marked as ours are what an earlier run of
// ovnkube could have left, and a master does with them what it does with those at any
// start. It keeps what it wants, changes what differs, and deletes in the same
// transaction what the object does not need. There is no second path.
//
// A row is understood only where its name or its match says which node, pod or Service
// it is for, or its external_ids which object of the features. Any other is left alone,
// and so is an address set that any such row refers to.
//
// Callers: app reads the rows with nb/ovsdb, and marks them.
package adopt
