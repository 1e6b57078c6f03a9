// Package podprobe sends the packets of a probe as a pod would: an attempt to open a TCP
// connection, which is closed at once, or a few datagrams with a fixed text.
//
// All that is done in the network namespace of the pod is to make one socket. It is bound to
// the pod's address, so that a path that has become another namespace's sends nothing, and to
// a port that nobody uses. What is sent goes to one address and port, and ends within a bound.
//
// Caller: app.
package podprobe
