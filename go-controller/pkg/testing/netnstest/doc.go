// Package netnstest gives a test a fresh network namespace of its own, and a
// real Open vSwitch in it where asked for. Tests never touch the network of the
// machine: New moves the test's goroutine into the namespace for good, and the
// namespace goes with the goroutine.
//
// Everything the test does on its own goroutine, commands it runs included,
// happens inside. Goroutines it starts are outside unless started with NS.Go;
// sockets opened inside stay inside wherever they are used.
//
// Callers: tests of the host drivers, the gateway, the CNI and health packages.
package netnstest
