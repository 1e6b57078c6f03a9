// Package node is a node's side of EgressServices: where the status names this
// node as host, its chain translates the source addresses of the endpoints.
//
// One key an EgressService, one contribution to the chain a key. After a restart
// the rules in the kernel stay until every EgressService has been reconciled and
// the caller ends the start-up phase of the chains (see host.ChainWriter).
//
// Caller: pkg/app.
package node
