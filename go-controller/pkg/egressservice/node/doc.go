// Package node is the node side of EgressService: if the status names this
// node as host, its chain translates the source addresses of the endpoints.
//
// Each EgressService has one key, and each key one contribution to the chain. After a restart
// the rules in the kernel stay until every EgressService has been reconciled and
// the caller ends the start-up phase of the chains (see host.ChainWriter).
//
// Caller: pkg/app.
package node
