// Package podprobe sends the packets of a probe as a pod would: an attempt to open a TCP
// connection, which is closed immediately, or a few datagrams with a fixed text.
//
// All that is done in the pod's network namespace is to create one socket. It is bound to the pod's
// address, so that nothing is sent if the path now belongs to another namespace, and to an unused
// port. Packets go to one address and port only, and within a time limit.
//
// Caller: app.
package podprobe
