// Package snapshot reads from the informers who has an address, and says which
// addresses an event is about. It is the glue of package reserved, for master and
// nodes.
//
// Callers: the glue of service, egressservice and egressip, explain, app.
package snapshot
