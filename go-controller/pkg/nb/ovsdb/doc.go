// Package ovsdb is the one writer of the OVN northbound database.
//
// Client keeps one connection to the leader of the database and a cache of the
// tables and columns in table literals (tables.go), for ever. Writer makes the
// rows of an owner be exactly what a planner wants: it diffs the wanted rows
// against the cache and sends the difference as one transaction.
//
// Invariants:
//
//   - A row is ours when its external_ids say so (ids.go); rows of anybody else
//     are never changed or deleted. Tables without external_ids have a rule in
//     their literal that tells the owner from the row.
//   - No difference, no transaction. Sets are compared without order, and nil
//     equals empty.
//   - When Apply returns nil, the rows are in the database and in the cache:
//     ovsdb-server sends the update before the reply, on one connection, and the
//     client library handles messages one after the other.
//   - Reference columns that hold children (policies, ports, ...) are not
//     monitored, because a router may have ten thousand of them. A child that
//     nobody references is garbage collected by the server, so a child in the
//     cache is referenced; whose child it is stands in its external_ids.
//   - A connection is one session: after it breaks, the next one starts with an
//     empty cache that is complete before anything is diffed against it.
//   - What the owners of several concurrent Apply calls need travels in one
//     transaction; should it be refused, each goes alone, so that nobody fails
//     because of somebody else.
//
// Callers: app connects and hands the Writer to the features' glue as nb.Writer.
package ovsdb
