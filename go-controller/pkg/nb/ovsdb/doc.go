// Package ovsdb is the only writer of the OVN northbound database.
//
// Client keeps one connection to the leader of the database and a cache of the tables and
// columns in the table literals (tables.go). Writer makes the rows of an owner match
// exactly what a planner wants: it diffs the wanted rows against the cache and sends the
// difference as one transaction.
//
// Invariants:
//
//   - A row is ours if its external_ids say so (ids.go); foreign rows are never changed or
//     deleted. For tables without external_ids, the literal has a rule that derives the
//     owner from the row.
//   - Without a difference no transaction is sent. Sets are compared without order, and nil
//     equals empty.
//   - When Apply returns nil, the rows are in the database and in the cache: ovsdb-server
//     sends the update before the reply, on the same connection, and the client library
//     handles messages in order.
//   - Reference columns that hold children (policies, ports, ...) are not monitored,
//     because a router may have ten thousand of them. The server garbage collects children
//     that are not referenced, so a child in the cache is referenced; its external_ids name
//     its parent.
//   - A connection is one session: after it breaks, the next one starts with an empty
//     cache, which is filled completely before anything is diffed against it. If a later
//     update cannot be applied to the cache, the session ends.
//   - The changes of several concurrent Apply calls are sent in one transaction. If it is
//     rejected, each is sent alone, so that no owner fails because of another.
//
// Callers: app connects and passes the Writer to the features' glue as nb.Writer.
package ovsdb
