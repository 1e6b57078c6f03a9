// Package tracer asks the programs and the kernel of a node what they would do with a packet:
// ovn-trace for the logical network, ovs-vswitchd for the flows of a bridge, the kernel for the
// route. It sends no packet and changes nothing.
//
// Each value is passed to programs as one argument, without a shell. The caller checks that values
// consist of names and addresses only.
//
// Caller: app.
package tracer
