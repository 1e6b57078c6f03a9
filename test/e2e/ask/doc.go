// Package ask asks servers over the network: by HTTP, each time over a new connection, or by UDP. Run runs what the
// probe program has as commands:
//
//	get    URL        return the body, or fail
//	survey URL...     get several URLs concurrently, and return a JSON object of answers and errors
//	ask    ADDR:PORT  return the answer by UDP, or fail
//	chase  ADDR:PORT  send datagrams until only one server answers
//
// A question can be asked from any network namespace of this machine, as if the asking program ran in it: pods and
// machines of kin are namespaces of the machine on which the tests run, and it takes much less to open a socket in a namespace
// than to start a program there. Names are not supported in URLs then: they would be looked up
// outside. When a question has been answered or has failed, nothing of it remains: no open socket, and no attempt to
// connect.
//
// Callers: the probe, in its own namespace, and the lab.
package ask
