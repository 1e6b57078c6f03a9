// Package snapshot reads the owners of addresses from the informers, and determines which addresses an event
// concerns. It is the glue of package reserved, for master and nodes.
//
// Callers: the glue of service, egressservice and egressip, explain, app.
package snapshot
